// Which host each rank of mpirun is on, asked of its PMIx server.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/mpirun_hosts.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/pmix/node_barrier.h"
#include "comm/pmix/pmix_session.h"
#include "comm/process/abandonable_thread.h"
#include "core/exchange/pmix_environment.h"
#include "core/step/mpirun_facts.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using Hosts = std::vector<std::string>;

Result<Hosts> read_hosts(const PmixSession& session, std::size_t size, Deadline deadline) {
  std::vector<pmix::Answer> answers;
  answers.reserve(size);
  for (Rank rank = 0; rank < size; ++rank) {
    answers.push_back(session.client().get(session.self(), rank, pmix::kHostKey, true));
  }
  Hosts hosts;
  hosts.reserve(size);
  for (auto& answer : answers) {
    const auto who = cat({"rank ", std::to_string(hosts.size())});
    if (!answer.wait_until(deadline)) {
      return fail(ErrorCode::kTimeout, cat({"mpirun's PMIx server does not answer a query for the host of ", who}));
    }
    if (answer.code() != pmix::kSuccess) {
      return fail(ErrorCode::kUnavailable, cat({"mpirun's PMIx server did not provide the host of ", who, ": ",
                                                session.client().describe(answer.code()),
                                                "; it may not accept a second PMIx session of this rank"}));
    }
    hosts.push_back(answer.take_bytes());
  }
  return hosts;
}

// Where the ranks of this node meet after their sessions, told by the first of them.
constexpr const char* kMeetingKey = "bootstrap.asked";
// For mpirun to note that a rank has finalised, before it sees that its connection is gone: see PmixSession::open().
constexpr auto kPause = std::chrono::milliseconds(100);

struct Self {
  PmixServer server;
  Rank rank = 0;
  std::size_t size = 0;
};

Result<Self> read_self(const Environment& environment) {
  const auto rank = parse_unsigned(environment.get("OMPI_COMM_WORLD_RANK").value_or(""), kMaxRanks);
  const auto size = parse_unsigned(environment.get("OMPI_COMM_WORLD_SIZE").value_or(""), kMaxRanks);
  if (!rank || !size) return fail(ErrorCode::kInvalid, "OMPI_COMM_WORLD_RANK or OMPI_COMM_WORLD_SIZE is not a number");
  const auto id = mpirun_id(environment.get("PMIX_NAMESPACE").value_or(""));
  auto server = check_pmix_environment(environment, id, static_cast<Rank>(*rank));
  if (!server) return fail(server.error());
  return Self{std::move(*server), static_cast<Rank>(*rank), *size};
}

Result<Hosts> ask_within_session(const Environment& environment, Deadline deadline) {
  const auto self = read_self(environment);
  if (!self) return fail(self.error());
  auto session = PmixSession::open(self->server, self->rank);
  if (!session) return fail(session.error());
  auto hosts = read_hosts(*session, self->size, deadline);
  (void)session->close(deadline);
  return hosts;
}

struct Question {
  Environment environment;
  Deadline deadline;
  Result<Hosts> hosts = fail(ErrorCode::kUnavailable, "the query did not run");
};

Result<Hosts> ask_in_time(const Environment& environment, Deadline deadline) {
  auto question = std::make_shared<Question>();
  question->environment = environment;
  question->deadline = deadline;
  AbandonableThread worker;
  const auto started =
      worker.start([question] { question->hosts = ask_within_session(question->environment, question->deadline); });
  if (!started) return fail(started.error());
  // It keeps the deadline itself, but for connecting and taking leave.
  if (worker.wait_until(deadline + std::chrono::seconds(1))) return question->hosts;
  return fail(ErrorCode::kTimeout, "mpirun's PMIx server on this node does not answer");
}

// The ranks of this node leave together: the end of one session must not fall into what another one does next.
class Leaving {
 public:
  Leaving(const Hosts& hosts, Rank rank) {
    while (hosts[first_] != hosts[rank]) ++first_;
    others_ = static_cast<std::uint32_t>(std::count(hosts.begin(), hosts.end(), hosts[rank])) - 1;
    is_first_ = first_ == rank;
  }

  // Within the session: who meets where.
  void prepare(const PmixSession& session, Deadline deadline) {
    if (others_ == 0) return;
    if (!is_first_) {
      const auto names = session.read({{first_, kMeetingKey, false}}, deadline, false,
                                      [](Rank, const std::string& name) { return !name.empty(); });
      name_ = names.front().value_or("");
      return;
    }
    meeting_ = NodeBarrier::open();
    const auto put = session.put(pmix::Scope::kNode, kMeetingKey, meeting_.name());
    if (put) (void)session.commit();
  }

  void leave(Deadline deadline) const {
    if (others_ == 0) return;
    (void)(is_first_ ? meeting_.lead(others_, deadline) : NodeBarrier::wait(name_, deadline));
  }

 private:
  Rank first_ = 0;
  std::uint32_t others_ = 0;
  bool is_first_ = false;
  NodeBarrier meeting_;
  std::string name_;
};

}  // namespace

Result<std::vector<std::string>> ask_mpirun_hosts(const Environment& environment, Deadline deadline) {
  const auto self = read_self(environment);
  if (!self) return fail(self.error());
  (void)keep_connections();
  auto session = PmixSession::open(self->server, self->rank, Lifetime::kCall);
  if (!session) return fail(session.error());
  auto hosts = read_hosts(*session, self->size, deadline);
  if (!hosts || hosts->size() <= self->rank) {
    (void)session->close(deadline, kPause);
    return hosts;
  }
  Leaving leaving(*hosts, self->rank);
  leaving.prepare(*session, deadline);
  (void)session->close(deadline, kPause);
  leaving.leave(deadline);
  return hosts;
}

Result<std::vector<std::string>> find_mpirun_hosts(const Environment& environment, Deadline deadline) {
  if (!needs_hosts(environment)) return Hosts();
  static std::mutex mutex;
  static const Hosts* known = nullptr;
  const std::lock_guard lock(mutex);
  if (known == nullptr) {
    auto hosts = ask_in_time(environment, deadline);
    if (!hosts) return hosts;
    known = new Hosts(std::move(*hosts));
  }
  return *known;
}

}  // namespace bootstrap
