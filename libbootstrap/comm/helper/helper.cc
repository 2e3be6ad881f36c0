// The helper process: the rank asks over a socket, and an engine in the helper does the work.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper/helper.h"

#include <unistd.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "comm/pmix/pmix_library.h"
#include "core/step/step_facts.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/read_environment.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Strings = std::vector<std::string>;

// A request is a list of strings and begins with one of these names. Only the first request begins with the version,
// since the library may be upgraded while the program runs. An answer begins with an empty string, or is the number and
// the message of an error. Rank and helper run on one machine, so numbers are not converted.
constexpr const char* kRun = "run";        // the tagged value, the deadline, is_for_step, the ranks
constexpr const char* kReport = "report";  // the tagged report or nothing, the ranks
constexpr const char* kLeave = "leave";    // do_all_leave

std::string as_text(bool value) { return value ? "1" : "0"; }

std::string as_bytes(const std::vector<Rank>& ranks) {
  return {reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Rank)};
}

// After a deadline a PMIx helper queries the missing ranks for this long. A PMI-1 helper cannot: it waits in libpmi.
constexpr milliseconds kTimeToAsk{1800};
constexpr milliseconds kReportTime{1750};

// In the rank: sends requests to the helper.
class HelperEngine final : public ExchangeEngine {
 public:
  // `silence`: the message if no answer has come `more` after a deadline.
  HelperEngine(std::unique_ptr<HelperProcess> helper, milliseconds more, std::string silence)
      : helper_(std::move(helper)), more_(more), silence_(std::move(silence)) {}

  Status open(Carrier carrier, bool may_follow_another, Deadline deadline) {
    const auto answer =
        ask({std::string(kVersion), std::to_string(static_cast<int>(carrier)), as_text(may_follow_another)}, deadline);
    if (!answer) return fail(answer.error());
    name_ = answer->at(1);
    return {};
  }

  std::string name() const override { return name_; }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    const auto deadline = std::chrono::nanoseconds(round.deadline.time_since_epoch()).count();
    auto answer = ask({kRun, encode_tagged_value(tag, round.value), std::to_string(deadline),
                       as_text(round.is_for_step), as_bytes(round.read)},
                      round.deadline + more_);
    if (!answer) return answer;
    answer->erase(answer->begin());
    return answer;
  }

  Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                    const std::vector<Rank>& asked) override {
    const auto answer = ask({kReport, encode_tagged_value(tag, own ? write_record(*own) : ""), as_bytes(asked)},
                            steady_clock::now() + kReportTime);
    if (!answer) return fail(answer.error());
    RankReports reports;
    reports.missing = answer->at(1);
    for (std::size_t i = 2; i + 1 < answer->size(); i += 2) {
      auto one = read_record<RankReport>((*answer)[i + 1]).value_or(RankReport());
      one.rank = parse_unsigned<Rank>((*answer)[i]).value_or(0);
      reports.failures.push_back(std::move(one));
    }
    return reports;
  }

  void leave(bool do_all_leave, Deadline deadline) override {
    if (!is_lost_) (void)ask({kLeave, as_text(do_all_leave)}, deadline);
    if (!is_lost_) (void)helper_->wait_for_end(deadline);
  }

 private:
  Result<Strings> ask(Strings request, Deadline deadline) {
    auto answer = helper_->ask(request, deadline);
    for (auto& text : request) wipe(text);
    if (!answer) is_lost_ = true;
    if (!answer && answer.error().code == ErrorCode::kTimeout) return fail(ErrorCode::kTimeout, silence_);
    if (!answer) {
      return fail(ErrorCode::kUnavailable,
                  cat({"the helper process of this rank failed: ", answer.error().message, "; start a new step"}));
    }
    const auto code = parse_unsigned(answer->front());
    if (code) return fail(static_cast<ErrorCode>(*code), answer->at(1));
    return answer;
  }

  std::unique_ptr<HelperProcess> helper_;
  milliseconds more_;
  std::string silence_;
  std::string name_;
  bool is_lost_ = false;  // it gave no answer
};

// In the helper: answers the requests of the rank.
class HelperServer {
 public:
  // Serves the rank until it leaves or ends.
  void run() {
    work_.lock();
    pmix::released_in_waits = &work_;
    pthread_t watcher;
    const auto watch = [](void* server) -> void* { static_cast<HelperServer*>(server)->end(); };
    if (start_thread(watcher, watch, this) != 0) return;
    helper_socket::send({helper_socket::kBegun});
    auto request = next();
    if (!request || !open(*request)) return;
    while ((request = next()) && answer(*request)) continue;
    if (!request) engine_->tell_end_of_rank();
    engine_.reset();
  }

  // In the other thread: waits for the end of the rank, then ends the helper, whatever the main thread does.
  [[noreturn]] void end() {
    helper_socket::wait_for_end();
    if (is_pmi1_) ::_exit(0);  // it may wait in libpmi for ever, and has nothing to close
    work_.lock();
    if (engine_) engine_->tell_end_of_rank();
    engine_.reset();
    ::_exit(0);
  }

 private:
  Result<Strings> next() {
    work_.unlock();
    auto request = helper_socket::receive();
    work_.lock();
    return request;
  }

  // The helper has the environment of its rank, and with it the same facts.
  bool open(const Strings& words) {
    if (words.front() != kVersion) {
      return refuse({ErrorCode::kUnavailable, "libbootstrap was upgraded while the program ran; start it again"});
    }
    is_pmi1_ = words[1] != "0";
    const auto facts = read_task_facts(process_environment(), {});
    if (!facts) return refuse(facts.error());
    const StepRank self{facts->id, facts->layout, facts->ranks_here.front(), process_environment()};
    auto made = is_pmi1_ ? connect_to_pmi1(self) : connect_to_pmix(self, words[2] == "1");
    if (!made) return refuse(made.error());
    engine_ = std::move(*made);
    helper_socket::send({"", engine_->name()});
    return true;
  }

  static bool refuse(const Error& error) {
    answer_with(error);
    return false;
  }

  bool answer(Strings& words) {
    if (words.front() == kLeave) {
      engine_->leave(words[1] == "1", Deadline::max());
      helper_socket::send({"", ""});
      return false;
    }
    const auto call = decode_tagged_value(words[1]);
    if (!call) return false;
    std::vector<Rank> ranks(words.back().size() / sizeof(Rank));
    words.back().copy(reinterpret_cast<char*>(ranks.data()), ranks.size() * sizeof(Rank));
    if (words.front() == kRun) {
      run_round(*call, ranks, words);
    } else {
      share_reports(*call, ranks);
    }
    wipe(words[1]);
    return true;
  }

  void run_round(const TaggedValue& call, const std::vector<Rank>& ranks, const Strings& words) {
    const std::chrono::nanoseconds since(static_cast<std::int64_t>(parse_unsigned(words[2]).value_or(0)));
    Allgather round{.purpose = call.tag.purpose,
                    .value = std::string(call.bytes),
                    .is_for_step = words[3] == "1",
                    .read = ranks,
                    .deadline = Deadline(std::chrono::duration_cast<Deadline::duration>(since))};
    auto values = engine_->run(call.tag, round);
    wipe(round.value);
    if (!values) return answer_with(values.error());
    values->insert(values->begin(), "");
    helper_socket::send(*values);
    for (auto& value : *values) wipe(value);
  }

  void share_reports(const TaggedValue& call, const std::vector<Rank>& ranks) {
    const auto reports = engine_->share_reports(call.tag, read_record<RankReport>(call.bytes), ranks);
    if (!reports) return answer_with(reports.error());
    Strings answer{"", reports->missing};
    for (const auto& each : reports->failures) {
      answer.push_back(std::to_string(each.rank));
      answer.push_back(write_record(each));
    }
    helper_socket::send(answer);
  }

  std::mutex work_;  // locked while the main thread may be in a call of the engine, but not in a wait
  std::unique_ptr<ExchangeEngine> engine_;
  std::atomic<bool> is_pmi1_{false};
};

}  // namespace

Engine start_helper(const StepRank& self, Carrier carrier, bool may_follow_another, Deadline deadline) {
  const bool is_pmi1 = carrier == Carrier::kPmi1;
  auto helper = HelperProcess::start(self.environment, deadline);
  if (!helper) {
    return fail(helper.error().code,
                cat({"the helper process for ", is_pmi1 ? "PMI-1" : "PMIx", " failed: ", helper.error().message,
                     is_pmi1 ? "; start the program with srun --mpi=pmix" : ""}));
  }
  constexpr const char* kOfPmi1 =
      "not all ranks joined the call before the deadline; PMI-1 does not report which, srun --mpi=pmix does";
  auto engine = std::make_unique<HelperEngine>(std::move(*helper), is_pmi1 ? milliseconds(0) : kTimeToAsk,
                                               is_pmi1 ? kOfPmi1 : describe_silence(self, false));
  if (auto opened = engine->open(carrier, may_follow_another, deadline); !opened) return fail(opened.error());
  return Engine(std::move(engine));
}

void answer_with(const Error& error) {
  helper_socket::send({std::to_string(static_cast<int>(error.code)), error.message});
}

void serve_as_helper() noexcept {
  try {
    auto* const server = new HelperServer;  // never deleted: its other thread may use it until the end
    server->run();
  } catch (const std::exception&) {
    // Out of memory: the rank reports that it got no answer.
  }
  ::_exit(0);
}

}  // namespace bootstrap

// On x86-64 the kernel's stack holds no return address, so its alignment differs from what functions expect.
#if defined(__x86_64__)
#define BOOTSTRAP_ENTRY [[gnu::force_align_arg_pointer, noreturn, gnu::used]]
#define BOOTSTRAP_NO_CALLER ".cfi_undefined 16"  // a stack walk, such as a sanitizer's, stops here
#else
#define BOOTSTRAP_ENTRY [[noreturn, gnu::used]]
#define BOOTSTRAP_NO_CALLER ".cfi_undefined 30"
#endif

// The library starts here when HelperProcess lets the loader run it as a program; -Wl,-e,NAME puts the address into the
// header of the file. The loader has initialised the C library, so start code for argc, argv and constructors is not
// needed.
extern "C" {
BOOTSTRAP_ENTRY void bootstrap_entry();
void bootstrap_entry() {
  __asm__(BOOTSTRAP_NO_CALLER);
  bootstrap::serve_as_helper();
}
}
