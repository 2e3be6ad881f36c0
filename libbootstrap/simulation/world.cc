// The simulated cluster: nodes with cores, a slurmstepd and a link each, and the time line of what its ranks do.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/world.h"

#include <algorithm>

namespace bootstrap::simulation {

Seconds TimeLine::end() const {
  Seconds last = 0;
  for (const auto& span : phases) last = std::max(last, span.end);
  return last;
}

World::World(const Constants& constants, const Scenario& scenario)
    : constants_(constants),
      scenario_(scenario),
      noise_(scenario.seed == 0 ? 0 : constants.jitter, scenario.seed),
      links_(scenario.nodes()) {
  const bool is_one_machine = constants.machine_cores > 0;
  const double count = is_one_machine ? constants.machine_cores : constants.cores_per_node;
  const bool is_one_set = is_one_machine || count == 0;  // without a limit the nodes do not wait for each other
  for (Node node = 0; node < (is_one_set ? 1 : scenario.nodes()); ++node) cores_.emplace_back(queue_, count);
  servers_.reserve(scenario.nodes());
  for (Node node = 0; node < scenario.nodes(); ++node) servers_.emplace_back(cores(node));
}

void World::send(Node from, Node to, Seconds latency, double bytes, Action done) {
  const Seconds length = bytes / constants_.link;
  auto& sender = links_[from];
  sender.free_to_send = std::max(sender.free_to_send, queue_.now()) + length;
  queue_.at(sender.free_to_send + latency * noise_.factor(), [this, to, length, done = std::move(done)] {
    auto& receiver = links_[to];
    // The last byte is here; but not before those of all messages that came earlier.
    receiver.free_to_receive = std::max(receiver.free_to_receive + length, queue_.now());
    queue_.at(receiver.free_to_receive, done);
  });
}

void World::begin(Phase phase) {
  auto& span = time_line_.phases[static_cast<std::size_t>(phase)];
  if (!span.is_there) span.begin = queue_.now();
  span.is_there = true;
}

void World::end(Phase phase) { time_line_.phases[static_cast<std::size_t>(phase)].end = queue_.now(); }

TimeLine World::run() {
  queue_.run();
  time_line_.events = queue_.handled();
  return time_line_;
}

}  // namespace bootstrap::simulation
