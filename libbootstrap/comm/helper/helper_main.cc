// The helper process: an engine that serves the rank over a socket.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper/helper_main.h"

#include <unistd.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "comm/pmix/pmix_library.h"
#include "core/step/rank_layout.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/read_environment.h"
#include "probe/secrets.h"

namespace bootstrap {

static auto fields_of(StepId& id) { return std::tie(id.job, id.step, id.restart, id.launcher); }

namespace {

using Strings = std::vector<std::string>;

// Rank and helper run on one machine: numbers stay as the machine has them.
template <class Number>
std::string as_bytes(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

template <class Number>
std::vector<Number> from_bytes(std::string_view bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

std::string as_text(bool value) { return value ? "1" : "0"; }

Layout layout_of(const std::vector<NodeIndex>& node_of_rank, Strings hosts) {
  std::vector<std::uint32_t> counts(hosts.size());
  for (const auto node : node_of_rank) ++counts.at(node);
  auto layout = Layout::make({LayoutComponent{std::move(hosts), std::move(counts), node_of_rank}});
  if (!layout) throw std::bad_alloc();  // the rank has made it before
  return std::move(*layout);
}

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

  bool open(const Strings& words) {
    if (words.size() < 6 || words[0] != kVersion) {
      answer_with({ErrorCode::kUnavailable, "libbootstrap was upgraded while the program ran; start it again"});
      return false;
    }
    is_pmi1_ = words[1] != "0";
    const StepRank self{read_record<StepId>(words[3]).value_or(StepId()),
                        layout_of(from_bytes<NodeIndex>(words[5]), Strings(words.begin() + 6, words.end())),
                        parse_unsigned<Rank>(words[4]).value_or(0), process_environment()};
    auto made = is_pmi1_ ? connect_to_pmi1(self) : connect_to_pmix(self, words[2] == "1");
    if (!made) {
      answer_with(made.error());
      return false;
    }
    engine_ = std::move(*made);
    id_ = self.id;
    helper_socket::send({"", engine_->name()});
    return true;
  }

  bool answer(Strings& words) {
    if (words.front() == helper_request::kRun && words.size() == 9) return run_round(words);
    if (words.front() == helper_request::kReport && words.size() >= 6) return share_reports(words);
    if (words.front() == helper_request::kLeave && words.size() == 2) {
      engine_->leave(words[1] == "1", Deadline::max());
      helper_socket::send({"", ""});
    }
    return false;
  }

  CallTag tag_of(const Strings& words) const {
    return {id_, parse_unsigned(words[1]).value_or(0), words[2], words[3],
            static_cast<ErrorCode>(parse_unsigned<int>(words[4]).value_or(0))};
  }

  bool run_round(Strings& words) {
    Allgather round;
    const auto since = std::chrono::nanoseconds(static_cast<std::int64_t>(parse_unsigned(words[5]).value_or(0)));
    round.deadline = Deadline(std::chrono::duration_cast<Deadline::duration>(since));
    round.is_for_step = words[6] == "1";
    round.read = from_bytes<Rank>(words[7]);
    round.purpose = words[2];
    round.value = std::move(words[8]);
    auto values = engine_->run(tag_of(words), round);
    wipe(round.value);
    if (!values) {
      answer_with(values.error());
      return true;
    }
    values->insert(values->begin(), "");
    helper_socket::send(*values);
    for (auto& value : *values) wipe(value);
    return true;
  }

  bool share_reports(const Strings& words) {
    std::optional<RankReport> own;
    if (words.size() == 8) own = RankReport{.failure = words[6], .has_lost_peer = words[7] == "1"};
    const auto reports = engine_->share_reports(tag_of(words), own, from_bytes<Rank>(words[5]));
    if (!reports) {
      answer_with(reports.error());
      return true;
    }
    Strings answer{"", reports->missing};
    for (const auto& each : reports->failures) {
      answer.insert(answer.end(), {std::to_string(each.rank), as_text(each.has_lost_peer), each.failure});
    }
    helper_socket::send(answer);
    return true;
  }

  std::unique_ptr<ExchangeEngine> engine_;
  StepId id_;
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

namespace helper_request {

Strings open(const StepRank& self, Carrier carrier, bool may_follow_another) {
  std::vector<NodeIndex> nodes;
  nodes.reserve(self.layout.size());
  for (Rank rank = 0; rank < self.layout.size(); ++rank) nodes.push_back(self.layout.place(rank).node);
  Strings words{std::string(kVersion),       std::to_string(static_cast<int>(carrier)),
                as_text(may_follow_another), write_record(self.id),
                std::to_string(self.rank),   as_bytes(nodes)};
  words.insert(words.end(), self.layout.hosts().begin(), self.layout.hosts().end());
  return words;
}

static Strings about_call(std::string_view what, const CallTag& tag) {
  return {std::string(what), std::to_string(tag.sequence), tag.purpose, tag.refusal,
          std::to_string(static_cast<int>(tag.code))};
}

Strings run(const CallTag& tag, const Allgather& round) {
  const auto deadline = std::chrono::nanoseconds(round.deadline.time_since_epoch()).count();
  auto words = about_call(kRun, tag);
  words.insert(words.end(), {std::to_string(deadline), as_text(round.is_for_step), as_bytes(round.read), round.value});
  return words;
}

Strings report(const CallTag& tag, const std::optional<RankReport>& own, const std::vector<Rank>& asked) {
  auto words = about_call(kReport, tag);
  words.push_back(as_bytes(asked));
  if (own) words.insert(words.end(), {own->failure, as_text(own->has_lost_peer)});
  return words;
}

}  // namespace helper_request

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
