// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "core/plan/explain.h"
#include "core/plan/plan_from_environment.h"
#include "core/util/text.h"
#include "probe/cpu_affinity.h"
#include "probe/device_access.h"
#include "probe/mpirun_context.h"
#include "probe/node_topology.h"
#include "probe/read_environment.h"
#include "probe/topology_file.h"
#include "tools/cli/commands.h"
#include "tools/explain_gpus/node_table.h"
#include "tools/explain_gpus/node_view.h"

namespace bootstrap {
namespace {

void print_table(const TaskPlan& task, bool as_json) {
  const auto text = as_json ? explain_json(task.facts, task.settings, task.reason, task.plan)
                            : explain_text(task.facts, task.settings, task.reason, task.plan);
  (void)std::fputs(text.c_str(), stdout);
  if (as_json) return;
  if (!task.is_set) {
    (void)std::puts("The plugin did not set these in this step; they are what it would have set.");
  }
  for (const auto& difference : task.differences) (void)std::printf("Note: %s.\n", difference.c_str());
}

// A file of the user's choice, else what slurmstepd goes by.
Result<Topology> topology_for(const TaskPlan& task, const std::string& host, const ExplainOptions& options) {
  if (!options.topology.empty()) return read_topology_file(options.topology);
  return read_node_topology(task.settings.topology.value, host).topology;
}

std::vector<OwnAccess::Device> own_devices(const Topology& topology) {
  std::vector<OwnAccess::Device> devices;
  for (const auto& path : device_files_of(topology.gpus)) {
    devices.push_back({path, try_device(path) == GpuVisibility::Access::kOpen});
  }
  return devices;
}

int draw(const TaskPlan& task, const ExplainOptions& options) {
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  const auto& host = task.facts.layout.hosts()[place.node];
  const auto topology = topology_for(task, host, options);
  if (!topology) return complain(topology.error().message);
  const auto access = options.environment.empty() ? OwnAccess{cores_of(0), own_devices(*topology)} : OwnAccess();
  (void)std::fputs(node_table(node_view_of(task, *topology, access)).c_str(), stdout);
  return 0;
}

}  // namespace

int explain_command(const ExplainOptions& options) {
  const auto environment = options.environment.empty() ? Result<Environment>(process_environment())
                                                       : captured_environment(options.environment);
  const bool is_own = options.environment.empty();
  const auto task = environment
                        ? read_task_plan(*environment, is_own ? read_mpirun_context(*environment) : MpirunContext())
                        : Result<TaskPlan>(fail(environment.error()));
  if (!task) return complain(task.error().message);
  const auto& place = task->facts.layout.place(task->facts.local_ranks.front());
  // A view is of a node, so that one task of each is enough.
  if (options.rank ? *options.rank != place.rank : options.gpus && options.environment.empty() && place.local_rank != 0)
    return 0;
  if (options.gpus) return draw(*task, options);
  print_table(*task, options.json);
  return 0;
}

}  // namespace bootstrap
