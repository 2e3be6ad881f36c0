// The helper process: an engine that serves the rank over a socket.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper/helper_main.h"

#include <unistd.h>

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

using Strings = std::vector<std::string>;

// Locked while the main thread may be in a call of the engine, but not in a wait.
std::mutex& work_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

class HelperServer {
 public:
  // Until the rank wants no more, or is gone.
  void run() {
    helper_socket::tell_begun();
    auto request = next();
    if (!request || !open(*request)) return;
    while ((request = next()) && answer(*request)) continue;
    if (!request) engine_->tell_end_of_rank();
    engine_.reset();
  }

  // After the rank has ended, in whatever the helper is.
  [[noreturn]] void end() {
    helper_socket::wait_for_end();
    if (is_pmi1_) ::_exit(0);  // it may wait in libpmi for ever, and has nothing to close
    work_mutex().lock();
    if (engine_) engine_->tell_end_of_rank();
    engine_.reset();
    ::_exit(0);
  }

 private:
  static std::optional<Strings> next() {
    work_mutex().unlock();
    auto request = helper_socket::receive();
    work_mutex().lock();
    return request;
  }

  // The helper has the environment of its rank, and with it the same facts.
  bool open(const Strings& words) {
    if (words.size() != 3 || words[0] != kVersion) {
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
    if (words.front() == helper_request::kLeave && words.size() == 2) {
      engine_->leave(words[1] == "1", Deadline::max());
      helper_socket::send({"", ""});
      return false;
    }
    const auto call = words.size() > 2 ? decode_tagged_value(words[1]) : std::nullopt;
    if (!call) return false;
    std::vector<Rank> ranks(words.back().size() / sizeof(Rank));
    words.back().copy(reinterpret_cast<char*>(ranks.data()), ranks.size() * sizeof(Rank));
    if (words.front() == helper_request::kRun && words.size() == 5) {
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

  std::unique_ptr<ExchangeEngine> engine_;
  std::atomic<bool> is_pmi1_{false};
};

HelperServer& server() {
  static auto* const one = new HelperServer;
  return *one;
}

}  // namespace

void answer_with(const Error& error) {
  helper_socket::send({std::to_string(static_cast<int>(error.code)), error.message});
}

void serve_as_helper() noexcept {
  try {
    work_mutex().lock();
    pmix::released_in_waits = &work_mutex();
    pthread_t watcher;
    const auto watch = [](void*) -> void* { server().end(); };
    if (start_thread(watcher, watch, nullptr) == 0) server().run();
  } catch (const std::exception&) {
    // Out of memory: the rank reports that it got no answer.
  }
  ::_exit(0);
}

}  // namespace bootstrap
