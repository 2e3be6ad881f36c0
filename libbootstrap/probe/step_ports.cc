// Reserves the TCP ports at which the ranks of a step meet, on the node where they will listen.
// SPDX-License-Identifier: Apache-2.0
#include "probe/step_ports.h"

#include <string_view>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string sentence(const std::string& reason, const StepPlan& plan, const Settings& settings) {
  if (plan.port_is_users) return cat({reason, "; you set this port: if rank 0 listens on it, set another one"});
  const auto& port = settings.port;
  if (port.value != 0) {
    return cat({reason, "; set another port in ", setting_name("port", port.source),
                ", or let the plugin choose one (--bootstrap-port=auto)"});
  }
  constexpr std::string_view kOtherPorts =
      "; start the step again, or set other ports with --bootstrap-port or --bootstrap-port-range; if this happens "
      "often, let Slurm reserve the ports (MpiParams=ports= in slurm.conf), or use --bootstrap-claim=off to start "
      "without a reserved port";
  return cat({reason, kOtherPorts});
}

std::string name_of(std::string_view what, std::uint16_t port, const std::string& host) {
  return cat({what, " ", std::to_string(port), " on ", host});
}

}  // namespace

std::vector<RefusedPort> StepPorts::reserve(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  std::vector<RefusedPort> refused;
  const auto take = [&](std::uint16_t port, const std::string& name) -> Status {
    auto reservation = PortReservation::take(port, name);
    if (!reservation) return fail(reservation.error());
    reservations_.push_back(std::move(*reservation));
    return {};
  };
  if (plan.port_to_reserve) {
    const auto port = *plan.port_to_reserve;
    const auto taken = take(port, name_of("MASTER_PORT", port, facts.layout.host_of(0)));
    if (!taken) plan.port_to_reserve.reset();
    // One task alone meets no other, and a server would report the error itself.
    if (!taken && facts.layout.size() > 1) {
      refused.push_back({sentence(taken.error().message, plan, settings), plan.port_is_users});
    }
  }
  for (const auto port : plan.worker_ports) {
    const auto taken = take(port, name_of("TF_CONFIG port", port, facts.layout.host_of(facts.local_ranks.front())));
    if (taken) continue;
    constexpr std::string_view kHint =
        "; start the step again, or set other ports with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE";
    refused.push_back({cat({taken.error().message, kHint})});
  }
  return refused;
}

}  // namespace bootstrap
