// From srun to main() of the tasks, and from there to a session with the PMIx server of the node.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/launch.h"

#include <algorithm>

namespace bootstrap::simulation {

void Launch::begin() {
  world_.begin(Phase::kLaunch);
  world_.wait(world_.constants().step_create, [this] { forward({0, world_.scenario().nodes()}); });
}

// Slurm starts a thread for each part, one after the other, that connects and sends (src/common/forward.c).
void Launch::forward(Span nodes) {
  const auto& constants = world_.constants();
  const auto parts = std::min(nodes.count, static_cast<std::uint32_t>(constants.tree_width));
  Seconds busy = 0;
  for (std::uint32_t part = 0; part < parts; ++part) {
    const std::uint32_t count = nodes.count / parts + (part < nodes.count % parts ? 1 : 0);
    busy += constants.launch_child;
    world_.wait(busy + constants.launch_hop, [this, first = nodes.first, count] { reach({first, count}); });
    nodes.first += count;
  }
}

void Launch::reach(Span nodes) {
  const auto& constants = world_.constants();
  if (nodes.count > 1) forward({nodes.first + 1, nodes.count - 1});
  world_.run_on(nodes.first, constants.stepd_start + constants.user_init, [this, node = nodes.first] {
    world_.end(Phase::kLaunch);
    world_.run_on(node, world_.constants().stepd_settle, [] {});
    start_tasks(node);
  });
}

void Launch::start_tasks(Node node) {
  world_.begin(Phase::kTasks);
  fork_task(node, 0);
}

void Launch::fork_task(Node node, std::uint32_t forked) {
  const auto& scenario = world_.scenario();
  const auto& constants = world_.constants();
  if (forked < scenario.ranks_on(node)) {
    return world_.serve_on(node, constants.task_fork, [this, node, forked] { fork_task(node, forked + 1); });
  }
  for (std::uint32_t local = 0; local < forked; ++local) {
    const Rank rank = scenario.first_rank(node) + local;
    world_.run_on(node, constants.task_init + constants.task_exec, [this, rank] {
      world_.end(Phase::kTasks);
      started_(rank);
    });
  }
}

void Sessions::begin(Rank rank) {
  const Node node = world_.scenario().node_of(rank);
  world_.begin(Phase::kInit);
  world_.run_on(node, world_.constants().init_client, [this, node, rank] {
    world_.wait(world_.constants().local_message, [this, node, rank] {
      world_.serve_on(node, world_.constants().init_server, [this, rank] {
        world_.wait(world_.constants().init_wait + world_.constants().local_message, [this, rank] {
          world_.end(Phase::kInit);
          ready_(rank);
        });
      });
    });
  });
}

}  // namespace bootstrap::simulation
