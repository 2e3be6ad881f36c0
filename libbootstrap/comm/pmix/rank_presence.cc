// Who has come to a call that everybody must make, asked without a fence: for calls that wait inside NCCL.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/rank_presence.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "comm/pmix/pmix_session.h"
#include "comm/process/abandonable_thread.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr auto kCloseTime = std::chrono::seconds(2);

std::string key_of(const std::string& topic) { return cat({"bootstrap.here.", topic}); }

}  // namespace

// What the worker that opens the session leaves behind. One that comes too late for its caller closes the session
// itself: a process that ends with one open ends its step.
struct RankPresence::Opening {
  std::mutex mutex;
  bool is_given_up = false;
  std::optional<PmixSession> session;
  Status status = fail(ErrorCode::kUnavailable, "the query did not run");

  Status open(const PmixServer& server, Rank rank);
  bool give_up();  // false when the session was there in the last moment
};

Status RankPresence::Opening::open(const PmixServer& server, Rank rank) {
  auto opened = PmixSession::open(server, rank);
  if (!opened) return fail(opened.error());
  {
    const std::lock_guard lock(mutex);
    if (!is_given_up) {
      session = std::move(*opened);
      return {};
    }
  }
  (void)opened->close(steady_clock::now());  // may block for ever, and the lock is wanted by who waits for us
  return {};
}

bool RankPresence::Opening::give_up() {
  const std::lock_guard lock(mutex);
  is_given_up = !session;
  return is_given_up;
}

RankPresence::RankPresence(std::shared_ptr<Opening> opening, bool from_mpirun, Layout layout, Rank rank)
    : opening_(std::move(opening)), is_mpiruns_(from_mpirun), layout_(std::move(layout)), rank_(rank) {}

Status RankPresence::say(const std::string& topic, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    said_[topic] = value;
  }
  const auto done = opening_->session->put(pmix::Scope::kStep, key_of(topic), value);
  return done ? opening_->session->commit() : done;
}

// Without a thread or memory for one, the session closes here, with its last owner.
RankPresence::~RankPresence() {
  try {
    AbandonableThread worker;
    const auto deadline = steady_clock::now() + kCloseTime;
    const auto started = worker.start([opening = opening_, deadline] { (void)opening->session->close(deadline); });
    if (started) (void)worker.wait_until(deadline);
  } catch (const std::exception&) {
  }
}

RankPresence::Answers RankPresence::ask(const std::string& topic, const std::vector<Rank>& ranks, Deadline deadline) {
  std::vector<Wanted> wanted;
  const auto node = layout_.place(rank_).node;
  for (const Rank rank : ranks) {
    if (rank != rank_) wanted.push_back({rank, key_of(topic), layout_.place(rank).node != node});
  }
  auto values = opening_->session->read(wanted, deadline, true, [](Rank, const std::string&) { return true; });
  Answers answers;
  answers.values.reserve(ranks.size());
  std::size_t next = 0;
  std::optional<std::string> own;
  {
    const std::lock_guard lock(mutex_);
    if (const auto said = said_.find(topic); said != said_.end()) own = said->second;
  }
  for (const Rank rank : ranks) answers.values.push_back(rank == rank_ ? own : std::move(values[next++]));
  const bool has_all = std::all_of(answers.values.begin(), answers.values.end(), [](const auto& one) { return one; });
  if (!has_all && !is_mpiruns_) answers.server = opening_->session->look_for_server(steady_clock::now() + kAnswerTime);
  return answers;
}

Result<std::unique_ptr<RankPresence>> RankPresence::open(const StepId& id, const Layout& layout, Rank rank,
                                                         const Environment& environment, Deadline deadline) {
  const auto server = check_pmix_environment(environment, id, rank);
  if (!server) return fail(server.error());
  auto opening = std::make_shared<Opening>();
  AbandonableThread worker;
  const auto started =
      worker.start([opening, server = *server, rank] { opening->status = opening->open(server, rank); });
  if (!started) return fail(started.error());
  if (!worker.wait_until(deadline)) {
    if (opening->give_up()) return fail(ErrorCode::kTimeout, "the PMIx server on this node does not answer");
  } else if (!opening->status) {
    return fail(opening->status.error());
  }
  return std::unique_ptr<RankPresence>(new RankPresence(opening, server->from_mpirun, layout, rank));
}

}  // namespace bootstrap
