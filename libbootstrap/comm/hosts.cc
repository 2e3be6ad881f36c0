// Which host each rank of mpirun is on, asked of its PMIx server.
// SPDX-License-Identifier: Apache-2.0
#include "comm/hosts.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/session.h"
#include "comm/worker.h"
#include "core/mpi_facts.h"
#include "core/pmix_gate.h"
#include "core/text.h"

namespace bootstrap {
namespace {

using Hosts = std::vector<std::string>;

Result<Hosts> read_hosts(const Session& session, std::size_t size, Deadline deadline) {
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
      return fail(ErrorCode::kTimeout, cat({"mpirun's PMIx server does not answer where ", who, " is"}));
    }
    if (answer.code() != pmix::kSuccess) {
      return fail(ErrorCode::kUnavailable,
                  cat({"mpirun's PMIx server does not tell where ", who, " is: ",
                       session.client().describe(answer.code()), "; an earlier session of this rank may have used up ",
                       "its place there, which ", kGdsVariable, "=", kGdsValue, " in mpirun's environment prevents"}));
    }
    hosts.push_back(answer.take_bytes());
  }
  return hosts;
}

struct Question {
  Environment environment;
  Deadline deadline;
  Result<Hosts> hosts = fail(ErrorCode::kUnavailable, "PMIx was not asked");
};

Result<Hosts> ask_in_time(const Environment& environment, Deadline deadline) {
  auto question = std::make_shared<Question>();
  question->environment = environment;
  question->deadline = deadline;
  Worker worker;
  const auto started =
      worker.start([question] { question->hosts = ask_hosts(question->environment, question->deadline); });
  if (!started) return fail(started.error());
  // ask_hosts() itself keeps the deadline, but for connecting and taking leave.
  if (worker.wait_until(deadline + std::chrono::seconds(1))) return question->hosts;
  return fail(ErrorCode::kTimeout, "mpirun's PMIx server on this node does not answer");
}

}  // namespace

Result<std::vector<std::string>> ask_hosts(const Environment& environment, Deadline deadline) {
  const auto rank = parse_unsigned(environment.get("OMPI_COMM_WORLD_RANK").value_or(""), kMaxRanks);
  const auto size = parse_unsigned(environment.get("OMPI_COMM_WORLD_SIZE").value_or(""), kMaxRanks);
  if (!rank || !size) return fail(ErrorCode::kInvalid, "OMPI_COMM_WORLD_RANK or OMPI_COMM_WORLD_SIZE is no number");
  const auto id = mpirun_id(environment.get("PMIX_NAMESPACE").value_or(""));
  const auto server = check_pmix_environment(environment, id, static_cast<Rank>(*rank));
  if (!server) return fail(server.error());
  auto session = Session::open(*server, static_cast<Rank>(*rank));
  if (!session) return fail(session.error());
  auto hosts = read_hosts(*session, *size, deadline);
  (void)session->close(deadline);
  return hosts;
}

Result<std::vector<std::string>> hosts_of_ranks(const Environment& environment, Deadline deadline) {
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
