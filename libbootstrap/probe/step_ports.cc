// Reserves the TCP ports at which the ranks of a step meet, on the node where they will listen.
// SPDX-License-Identifier: Apache-2.0
#include "probe/step_ports.h"

#include <string_view>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string sentence(const std::string& reason, const StepPlan& plan, std::uint16_t number, const std::string& host,
                     const Settings& settings) {
  if (plan.port_is_users) {
    return cat({"MASTER_PORT=", std::to_string(number), ", which you set, on ", host, ": ", reason,
                "; if this step is to listen there, choose another one"});
  }
  const auto& port = settings.port;
  if (port.value != 0) {
    return cat({"MASTER_PORT on ", host, ": ", reason, "; choose another one in ", setting_name("port", port.source),
                ", or let the plugin choose (--bootstrap-port=auto)"});
  }
  constexpr std::string_view kHint =
      "; start the step again, or choose other ports with --bootstrap-port or --bootstrap-port-range; where ports are "
      "taken often, Slurm can reserve them (MpiParams=ports= in slurm.conf); with --bootstrap-claim=off the step "
      "starts without a port that is held";
  return cat({"MASTER_PORT on ", host, ": ", reason, kHint});
}

}  // namespace

std::vector<RefusedPort> StepPorts::reserve(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  std::vector<RefusedPort> refused;
  const auto take = [&](std::uint16_t port) -> Status {
    auto reservation = PortReservation::take(port);
    if (!reservation) return fail(reservation.error());
    reservations_.push_back(std::move(*reservation));
    return {};
  };
  if (plan.port_to_reserve) {
    const auto port = *plan.port_to_reserve;
    const auto taken = take(port);
    if (!taken) plan.port_to_reserve.reset();
    // One task alone meets nobody, and a server would say itself what is wrong.
    if (!taken && facts.layout.size() > 1) {
      refused.push_back(
          {sentence(taken.error().message, plan, port, facts.layout.host_of(0), settings), plan.port_is_users});
    }
  }
  for (const auto port : plan.worker_ports) {
    const auto taken = take(port);
    if (taken) continue;
    constexpr std::string_view kHint =
        "; start the step again, or choose other ports with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE";
    refused.push_back(
        {cat({"TF_CONFIG: ", facts.layout.host_of(facts.local_ranks.front()), ": ", taken.error().message, kHint})});
  }
  return refused;
}

}  // namespace bootstrap
