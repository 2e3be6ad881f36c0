// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/explain.h"
#include "core/plan/plan.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "tools/cli/command_line.h"

namespace bootstrap {
namespace {

const Place& place_of(const OwnPlan& task) { return task.facts.layout.place(task.facts.ranks_here.front()); }

// "GPU 0 (0000:1b:00.0, /dev/nvidia0, NVIDIA H100 80GB HBM3, NUMA node 0)".
std::string describe(const OwnGpus& gpus, std::uint32_t index) {
  const auto& gpu = gpus.of_node[index];
  std::vector<std::string> parts{gpu.pci, gpu.device, printable(gpu.name)};
  if (gpu.numa) parts.push_back(cat({"NUMA node ", std::to_string(*gpu.numa)}));
  std::erase(parts, "");
  return cat({"GPU ", std::to_string(index), " (", join(parts, ", "), ")"});
}

void print_gpus(const OwnPlan& task) {
  auto gpus = find_own_gpus(task.facts.environment);
  std::vector<std::string> own;
  std::erase(gpus.own, OwnGpus::kNotKnown);
  std::erase(gpus.usable, OwnGpus::kNotKnown);
  for (const auto index : gpus.own) own.push_back(describe(gpus, index));
  const auto cores = cores_of(0);
  const auto near = gpus.cores_near();
  std::sort(gpus.usable.begin(), gpus.usable.end());
  const auto& place = place_of(task);
  const auto line = cat({"rank ", std::to_string(place.rank), " (local rank ", std::to_string(place.local_rank),
                         ") on ", printable(task.facts.layout.hosts()[place.node]), ": ",
                         own.empty() ? "no GPU of its own" : join(own, " and "), "; runs on cores ", cores.to_list(),
                         near.empty() || cores.is_within(near) ? "" : ", far from it", "; can use ",
                         gpus.usable.empty() ? "no GPU" : cat({"GPUs ", write_ranges(gpus.usable)}), "\n"});
  (void)std::fputs(line.c_str(), stdout);
}

void print_table(const OwnPlan& task, const CLI::App& command) {
  ExplainContext context{.verdict = task.verdict,
                         .is_set_up = task.is_set,
                         .reserves_port = task.is_set && task.step.ports.master.has_value(),
                         .shows_all = has_flag(command, "--verbose"),
                         .notes = task.differences,
                         .versions = cat({"slurm-bootstrap ", kVersion})};
  for (auto& note : step_notes(task.facts, task.step)) context.notes.push_back(std::move(note));
  if (value_of(command, "--env").empty()) {
    const auto rank = task.facts.ranks_here.front();
    const auto cores = cores_of(0);
    const auto near = task.is_set ? find_own_gpus(task.facts.environment).cores_near() : CpuSet();
    context.notes.push_back(note_far_gpu(task.facts, rank, cores, near));
    if (is_one_core(cores)) context.notes.push_back(note_one_core(task.facts, task.step, rank));
  }
  std::erase(context.notes, "");
  const auto text = has_flag(command, "--json")
                        ? explain_json(task.facts, task.settings, task.step, task.task, context)
                        : explain_text(task.facts, task.settings, task.step, {&task.task, 1}, context);
  (void)std::fputs(text.c_str(), stdout);
}

int explain_command(const CLI::App& command) {
  const auto file = value_of(command, "--env");
  const auto rank = parse_unsigned<Rank>(value_of(command, "--rank"));
  const bool is_own = file.empty();
  const auto environment = is_own ? Result<Environment>(process_environment()) : captured_environment(file);
  const auto task = environment
                        ? read_own_plan(*environment, is_own ? read_mpirun_context(*environment) : MpirunContext())
                        : Result<OwnPlan>(fail(environment.error()));
  if (!task) return complain(task.error().message);
  const auto size = task->facts.layout.size();
  if (rank && *rank >= size) {
    const auto all = size == 1 ? std::string("rank 0 alone") : cat({"ranks 0 to ", std::to_string(size - 1)});
    return complain(cat({"--rank ", std::to_string(*rank), ": the step has ", all}));
  }
  if (rank && *rank != place_of(*task).rank) return 0;
  has_flag(command, "--gpus") ? print_gpus(*task) : print_table(*task, command);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  auto* const command =
      add_command(app, status, "explain", explain_command,
                  "Prints each variable of this step, its values, and where they come from. Start it inside a task.",
                  "Examples:\n"
                  "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap explain --rank 0\n"
                  "  srun --ntasks-per-node 4 --gres gpu:4 slurm-bootstrap explain --gpus | sort -V\n"
                  "\n"
                  "Exit status:\n"
                  "  0  the table is printed\n"
                  "  1  the environment is not that of a task, or a file cannot be read\n"
                  "  2  the command line is wrong\n");
  auto* const json = add_flag(*command, "--json", "Print JSON instead of the table");
  add_flag(*command, "--verbose", "Print internal variables too, and why a framework gets nothing");
  auto* const captured =
      command->add_option("--env", "Explain an environment captured with `env -0`; - is standard input")
          ->type_name("FILE");
  add_number(*command, "--rank", "RANK", 0, kMaxRanks - 1, "Print in the task of this rank only");
  add_flag(*command, "--gpus", "Print a line instead: the rank's GPU, its cores, and the GPUs that it can use")
      ->excludes(captured)
      ->excludes(json);
}

}  // namespace bootstrap
