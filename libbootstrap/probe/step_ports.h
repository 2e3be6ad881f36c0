// Reserves the TCP ports at which the ranks of a step meet, on the node where they will listen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "probe/port_reservation.h"

namespace bootstrap {

struct RefusedPort {
  std::string sentence;   // names the port, its host, the reason and what to do
  bool is_users = false;  // MASTER_PORT that the user set: two steps of a job may have it, and one of them listens
};

class StepPorts {
 public:
  // MASTER_PORT where rank 0 is, and those of the TensorFlow servers of this node. Resets plan.port_to_reserve where
  // that one is refused.
  std::vector<RefusedPort> reserve(StepPlan& plan, const StepFacts& facts, const Settings& settings);

  void release() { reservations_.clear(); }

 private:
  std::vector<PortReservation> reservations_;
};

}  // namespace bootstrap
