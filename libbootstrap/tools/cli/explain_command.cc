// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "core/plan/explain.h"
#include "core/plan/step_plan.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/node_topology.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "tools/cli/command_line.h"
#include "tools/explain_gpus/node_view.h"

namespace bootstrap {
namespace {

struct ExplainOptions {
  bool json = false;
  bool verbose = false;
  bool gpus = false;
  std::string topology;               // empty: as slurmstepd finds it
  std::string environment;            // empty: this process's
  std::optional<std::uint32_t> rank;  // empty: all
};

const Place& place_of(const TaskPlan& task) { return task.facts.layout.place(task.facts.local_ranks.front()); }

// A file of the user's choice, else what slurmstepd goes by.
Result<Topology> topology_for(const TaskPlan& task, const ExplainOptions& options) {
  if (!options.topology.empty()) return read_topology_file(options.topology);
  return read_node_topology(task.settings.topology.value, task.facts.layout.hosts()[place_of(task).node]).topology;
}

std::vector<OwnAccess::Device> own_devices(const Topology& topology) {
  std::vector<OwnAccess::Device> devices;
  for (const auto& path : device_files_of(topology.gpus)) {
    devices.push_back({path, try_device(path) == GpuVisibility::Access::kOpen});
  }
  return devices;
}

NodeView own_view(const TaskPlan& task, const Topology& topology, const ExplainOptions& options) {
  const auto access = options.environment.empty() ? OwnAccess{cores_of(0), own_devices(topology)} : OwnAccess();
  return node_view_of(task, topology, access);
}

std::string note_own_gpu(const TaskPlan& task, const NodeView& view) {
  const auto& own = view.ranks[place_of(task).local_rank];
  CpuSet near;
  for (const auto index : own.gpus) near = near | view.topology.gpus[index].near;
  return note_far_gpu(task.facts, own.rank, own.cpus, near);
}

void print_table(const TaskPlan& task, const NodeView& view, const ExplainOptions& options) {
  ExplainContext context{.verdict = task.verdict,
                         .is_set_up = task.is_set,
                         .is_preloaded = task.facts.is_preloaded,
                         .shows_all = options.verbose,
                         .notes = task.differences,
                         .versions = cat({"slurm-bootstrap ", kVersion})};
  for (auto& note : step_notes(task.facts, task.plan)) context.notes.push_back(std::move(note));
  if (task.is_set) context.notes.push_back(note_own_gpu(task, view));
  const bool is_own = options.environment.empty();
  if (is_own && is_one_core(cores_of(0))) {
    context.notes.push_back(note_one_core(task.facts, task.plan, task.facts.local_ranks.front()));
  }
  std::erase(context.notes, "");
  const auto text = options.json ? explain_json(task.facts, task.settings, task.plan, context)
                                 : explain_text(task.facts, task.settings, task.plan, context);
  (void)std::fputs(text.c_str(), stdout);
}

std::string no_such_rank(std::uint32_t rank, std::size_t size) {
  const auto last = std::to_string(size - 1);
  return cat({"--rank ", std::to_string(rank), ": the step has ",
              size == 1 ? std::string("rank 0 alone") : cat({"ranks 0 to ", last})});
}

int explain_command(const ExplainOptions& options) {
  const bool is_own = options.environment.empty();
  const auto environment =
      is_own ? Result<Environment>(process_environment()) : captured_environment(options.environment);
  const auto task = environment
                        ? read_task_plan(*environment, is_own ? read_mpirun_context(*environment) : MpirunContext())
                        : Result<TaskPlan>(fail(environment.error()));
  if (!task) return complain(task.error().message);
  const auto size = task->facts.layout.size();
  if (options.rank && *options.rank >= size) return complain(no_such_rank(*options.rank, size));
  const auto topology = topology_for(*task, options);
  if (!topology) return complain(topology.error().message);
  const auto& place = place_of(*task);
  // A view is of a node, so that one task of each is enough.
  if (options.rank ? *options.rank != place.rank : options.gpus && is_own && place.local_rank != 0) return 0;
  const auto view = own_view(*task, *topology, options);
  if (options.gpus) (void)std::fputs(node_table(view).c_str(), stdout);
  if (!options.gpus) print_table(*task, view, options);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  const auto options = std::make_shared<ExplainOptions>();
  auto* const command =
      add_command(app, "explain",
                  "Prints each variable of this step, its values, and where they come from. Start it inside a task.",
                  "Examples:\n"
                  "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap explain --rank 0\n"
                  "  srun -N2 --ntasks-per-node 4 --gres gpu:4 slurm-bootstrap explain --gpus\n"
                  "\n"
                  "Exit status:\n"
                  "  0  the table is printed\n"
                  "  1  the environment is not that of a task, or a file cannot be read\n"
                  "  2  the command line is wrong\n");
  command->add_flag("--json", options->json, "Print JSON instead of the table");
  command->add_flag("--verbose", options->verbose, "Print internal variables too, and why a framework gets nothing");
  command
      ->add_option("--env", options->environment, "Explain an environment captured with `env -0`; - is standard input")
      ->type_name("FILE");
  command->add_option("--rank", options->rank, "Print in the task of this rank only")
      ->type_name("RANK")
      ->check(whole_number(0, kMaxRanks - 1));
  command->add_flag("--gpus", options->gpus,
                    "Print a table of the node instead: which rank has which GPU, and which it can use");
  command->add_option("--topology", options->topology, "Read the topology from this file of `slurm-bootstrap topology`")
      ->type_name("FILE");
  command->callback([options, &status] { status = explain_command(*options); });
}

}  // namespace bootstrap
