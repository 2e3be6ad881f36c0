// Makes the ranks of a step one Horovod world over Gloo, without horovodrun: `slurm-bootstrap run --horovod`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod/horovod_world.h"

#include <cstdlib>
#include <optional>

#include "comm/exchange.h"
#include "comm/own_task.h"
#include "core/util/text.h"
#include "tools/horovod/rendezvous_server.h"

namespace bootstrap {
namespace {

// Gloo's own 30 s are too short where many ranks load PyTorch from one file system.
constexpr const char* kGlooTimeout = "300";

// The others shall receive rank 0's reason before their own deadlines.
constexpr std::chrono::seconds kTimeOfExchange(5);

// What Horovod reads of a rank (common/gloo/gloo_context.cc).
struct HorovodPlace {
  std::string host;
  std::uint32_t local_rank = 0;
  std::uint32_t local_size = 0;
  std::uint32_t cross_rank = 0;
  std::uint32_t cross_size = 0;
};

// Where each task sees its own GPU alone, as device 0, each is a node of its own to the program: LOCAL_RANK is 0.
bool is_isolated(const TaskPlan& task, const Place& own) {
  return effective_value(task.plan, "LOCAL_WORLD_SIZE") != std::to_string(own.local_size);
}

HorovodPlace place_of(const Layout& layout, Rank rank, bool is_isolated) {
  const auto& place = layout.place(rank);
  const auto& host = layout.host_of(rank);
  if (!is_isolated) return {host, place.local_rank, place.local_size, place.cross_rank, place.cross_size};
  return {cat({host, "-", std::to_string(place.local_rank)}), 0, 1, rank, static_cast<std::uint32_t>(layout.size())};
}

// MPI's controller has its own start, and half of each would hang.
Status check_users_choice(const Environment& environment) {
  for (const auto* name : {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}) {
    const auto value = environment.get(name);
    if (!value || *value != "mpi") continue;
    return fail(ErrorCode::kUnsupported,
                cat({name,
                     "=mpi is set, and --horovod makes a world over Gloo; unset it, or start Horovod over MPI: "
                     "srun --mpi=pmix PROGRAM, without --horovod"}));
  }
  return {};
}

std::string slots_of(const Layout& layout, bool is_isolated) {
  std::string lines;
  for (Rank rank = 0; rank < layout.size(); ++rank) {
    const auto place = place_of(layout, rank, is_isolated);
    lines += cat({place.host, " ", std::to_string(place.local_rank), " ", std::to_string(place.local_size), " ",
                  std::to_string(place.cross_rank), " ", std::to_string(place.cross_size), "\n"});
  }
  return lines;
}

// The port of the server, or rank 0's reason why there is none.
Result<std::string> learn_port(Exchange& exchange, const std::optional<std::string>& mine, Deadline deadline) {
  Allgather round;
  round.purpose = "Horovod's rendezvous";
  round.shared = mine;
  round.read_shared = {0};
  round.deadline = deadline;
  auto result = exchange.run(round);
  if (!result) return fail(result.error());
  return std::move(result->shared.front());
}

void set(const char* name, const std::string& value) { (void)::setenv(name, value.c_str(), 1); }
void set_if_unset(const char* name, const std::string& value) { (void)::setenv(name, value.c_str(), 0); }

}  // namespace

Status join_horovod_world(const Environment& environment, const std::vector<std::string>& program,
                          std::chrono::seconds timeout) {
  auto allowed = check_users_choice(environment);
  if (!allowed) return allowed;
  const auto deadline = Deadline::clock::now() + timeout;
  const auto task = read_own_task(environment, deadline);
  if (!task) return fail(task.error());
  const auto& layout = task->facts.layout;
  const auto rank = task->facts.local_ranks.front();
  const bool isolated = is_isolated(*task, layout.place(rank));
  if (layout.size() > 1) {
    std::optional<std::string> mine;
    if (rank == 0) {
      const auto port =
          start_rendezvous_server(program.front(), slots_of(layout, isolated), deadline - kTimeOfExchange);
      mine = port ? std::to_string(*port) : port.error().message;
    }
    const auto exchange = make_exchange(task->facts.id, layout, rank, environment);
    auto port = learn_port(*exchange, mine, deadline);
    if (!port) return fail(port.error());
    if (!parse_unsigned(*port, 65535)) return fail(ErrorCode::kUnavailable, rank == 0 ? *port : std::string());
    set("HOROVOD_GLOO_RENDEZVOUS_ADDR", effective_value(task->plan, "MASTER_ADDR"));
    set("HOROVOD_GLOO_RENDEZVOUS_PORT", *port);
  }
  const auto place = place_of(layout, rank, isolated);
  set("HOROVOD_RANK", std::to_string(rank));
  set("HOROVOD_SIZE", std::to_string(layout.size()));
  set("HOROVOD_LOCAL_RANK", std::to_string(place.local_rank));
  set("HOROVOD_LOCAL_SIZE", std::to_string(place.local_size));
  set("HOROVOD_CROSS_RANK", std::to_string(place.cross_rank));
  set("HOROVOD_CROSS_SIZE", std::to_string(place.cross_size));
  set("HOROVOD_HOSTNAME", place.host);
  set("HOROVOD_CONTROLLER", "gloo");
  set_if_unset("HOROVOD_CPU_OPERATIONS", "gloo");
  set_if_unset("HOROVOD_GLOO_TIMEOUT_SECONDS", kGlooTimeout);
  const auto interface = effective_value(task->plan, "GLOO_SOCKET_IFNAME");
  if (!interface.empty()) set_if_unset("HOROVOD_GLOO_IFACE", interface);
  return {};
}

}  // namespace bootstrap
