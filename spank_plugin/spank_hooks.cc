// What Slurm sees: the plugin's names and its hooks, each of them a call or two.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/node_reports.h"
#include "slurmstepd/step_on_node.h"
#include "spank_api.h"
#include "spank_options.h"
#include "srun/report_receiver.h"
#include "srun/srun_hooks.h"

using bootstrap::accept;
using bootstrap::guard;
using bootstrap::is_slurmstepd;
using bootstrap::is_srun;
using bootstrap::StepOnNode;

#pragma GCC visibility push(default)  // everything below is for Slurm; exports.map names it again

// At namespace scope `const` means internal linkage in C++, also inside extern "C" { }: without these declarations
// the macro below exports nothing and Slurm does not take this file for a plugin.
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(bootstrap, 1)
}

// `slurm-bootstrap check` searches the file for this text. Nothing refers to it: the linker would leave it out.
__attribute__((used, retain)) static const char kMark[] = BOOTSTRAP_PLUGIN_MARK;

// All contexts: srun, sbatch, salloc and slurmstepd. In slurmstepd a failure here would drain the node, so task_init
// acts on it: a step whose options are lost would get wrong values.
extern "C" int slurm_spank_init(spank_t spank, int count, char** arguments) {
  const auto begin = [&] {
    if (!bootstrap::begin_options(spank, count, arguments)) return bootstrap::kAccepted;
    if (is_slurmstepd()) bootstrap::take_heap_reserve();
    if (is_slurmstepd()) bootstrap::NodeReports::current().say_hello(spank);
    if (is_srun()) bootstrap::find_supervisor();
    if (!is_slurmstepd()) bootstrap::unset_outer_variables();
    if (is_srun()) bootstrap::begin_launch(spank);
    return bootstrap::kAccepted;
  };
  return guard(
      "init", [] { return StepOnNode::fail_all_tasks(false); }, begin);
}

// srun, sbatch and salloc have read their command lines.
extern "C" int slurm_spank_init_post_opt(spank_t spank, int /*count*/, char** /*arguments*/) {
  return guard("init_post_opt", accept, [&] {
    if (is_srun()) bootstrap::end_of_options(spank);
    if (bootstrap::is_allocator()) bootstrap::pass_options_to_job();
    return bootstrap::kAccepted;
  });
}

// srun, when the step exists and its tasks do not yet.
extern "C" int slurm_spank_local_user_init(spank_t spank, int /*count*/, char** /*arguments*/) {
  return guard("local_user_init", accept, [&] { return bootstrap::decide_step(spank); });
}

// slurmstepd, once per node, as the user. A failure would drain the node under sbatch, so task_init acts on it.
extern "C" int slurm_spank_user_init(spank_t spank, int /*count*/, char** /*arguments*/) {
  bootstrap::release_heap_for_us();
  const int outcome = guard(
      "user_init", [] { return StepOnNode::fail_all_tasks(true); }, [&] { return StepOnNode::user_init(spank); });
  bootstrap::release_heap_for_slurm();
  return outcome;
}

// slurmstepd as root, once for each task, when all are forked and have their cores, and none runs on yet. A failure
// drains the node under sbatch.
extern "C" int slurm_spank_task_post_fork(spank_t spank, int /*count*/, char** /*arguments*/) {
  return guard("task_post_fork", accept, [&] { return StepOnNode::current().task_post_fork(spank); });
}

// The forked child that will become the task: the one place where a failure ends the step and nothing else.
extern "C" int slurm_spank_task_init(spank_t spank, int /*count*/, char** /*arguments*/) {
  return guard(
      "task_init", [&] { return StepOnNode::fail_task(spank); }, [&] { return StepOnNode::task_init(spank); });
}

// slurmstepd as root, for each task that has ended.
extern "C" int slurm_spank_task_exit(spank_t spank, int /*count*/, char** /*arguments*/) {
  return guard("task_exit", accept, [&] { return StepOnNode::current().task_exit(spank); });
}

// srun and slurmstepd, when all tasks (of the node) have ended.
extern "C" int slurm_spank_exit(spank_t /*spank*/, int /*count*/, char** /*arguments*/) {
  return guard("exit", accept,
               [] { return is_srun() ? bootstrap::end_report_receiver() : StepOnNode::current().end(); });
}

#pragma GCC visibility pop
