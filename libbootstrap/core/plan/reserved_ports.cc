// Which ports slurmstepd or a preloaded process holds for a step, and what people read where it cannot.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/reserved_ports.h"

#include <algorithm>

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string describe_refused_master(const PortPlan& plan, const std::string& reason, const Settings& settings) {
  if (plan.is_users) return cat({reason, "; you set this port: if rank 0 listens on it, set another one"});
  const auto& port = settings.port;
  if (port.value != 0) {
    return cat({reason, "; set another port in ", setting_name(settings, "port"),
                ", or let the plugin choose one (--bootstrap-port=auto)"});
  }
  constexpr std::string_view kOtherPorts =
      "; start the step again, or set other ports with --bootstrap-port or --bootstrap-port-range; if this happens "
      "often, let Slurm reserve the ports (MpiParams=ports= in slurm.conf), or use --bootstrap-claim=off to start "
      "without a reserved port";
  return cat({reason, kOtherPorts});
}

}  // namespace

PortToReserve port_to_reserve(std::string_view what, std::uint16_t port, const std::string& host) {
  return {port, cat({what, " ", std::to_string(port), " on ", host})};
}

std::vector<RefusedPort> describe_refused_ports(const PortPlan& plan, const PortFacts& found, const StepFacts& facts,
                                                const Settings& settings) {
  std::vector<RefusedPort> refused;
  // A single task meets no other, and a server would report the error itself.
  if (!found.refused_master.empty() && facts.layout.size() > 1) {
    refused.push_back({describe_refused_master(plan, found.refused_master, settings), plan.is_users});
  }
  for (const auto& reason : found.refused_workers) {
    constexpr std::string_view kHint =
        "; start the step again, or set other ports with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE";
    refused.push_back({cat({reason, kHint})});
  }
  if (!found.task_without_ports) return refused;
  const auto rank = facts.ranks_here[*found.task_without_ports];
  refused.push_back(
      {cat({setting_text(settings, "ports"), ": too few ports are free for rank ", std::to_string(rank), " on ",
            facts.layout.host_of(rank), "; set others with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE"})});
  return refused;
}

std::uint16_t task_port(const StepFacts& facts, const Settings& settings, Rank rank, std::uint32_t i) {
  const auto& range = settings.port_range.value;
  const auto most = facts.layout.most_on_a_node();
  const auto n = most + 2 + facts.layout.place(rank).local_rank + i * most;  // behind TensorFlow's and JAX's
  return n + range.low <= range.high ? further_port(facts, range, n) : std::uint16_t{0};
}

Status plan_ports_of_tasks(PortPlan& plan, const StepFacts& facts, const Settings& settings) {
  constexpr std::uint32_t kMostOnNode = 256;  // descriptors of slurmstepd, which needs others for the tasks
  constexpr std::uint32_t kMostInUse = 16;    // ports of a task that are passed over, since others have them
  const auto count = settings.ports.value;
  if (count == 0 || facts.decision.set_up == SetUp::kTorchrun) return {};
  const auto most = facts.layout.most_on_a_node();
  const auto& range = settings.port_range.value;
  const auto others = most + 2;  // MASTER_PORT, JAX's and TensorFlow's
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const auto room = std::min(kMostOnNode, size - std::min(size, others));
  if (most * count > room) {
    return fail(ErrorCode::kLimit,
                cat({setting_text(settings, "ports"), ": ", counted(most, "task"), " on a node need ",
                     std::to_string(most * count), " ports, and there are ", std::to_string(room),
                     "; use a lower number, or a larger --bootstrap-port-range"}));
  }
  plan.count_of_task = count;
  plan.reserves_ports_of_tasks = settings.claim.value;
  for (const auto rank : facts.ranks_here) {
    auto& ports = plan.of_tasks.emplace_back();
    for (std::uint32_t i = 0; i < count + kMostInUse; ++i) {
      const auto port = task_port(facts, settings, rank, i);
      if (port == 0) break;
      ports.push_back(port);
    }
  }
  return {};
}

}  // namespace bootstrap
