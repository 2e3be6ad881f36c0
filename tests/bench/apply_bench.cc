// What task_init does once for each task: what a plan has for it alone is set, variable by variable.
// SPDX-License-Identifier: Apache-2.0
//
// Slurm is its double, which keeps the variables in a map: Slurm's own spank_setenv takes longer, so this is our part
// of the cost and no more. scripts/bench measures the hook with all of it in a real slurmstepd.
#include <benchmark/benchmark.h>

#include <string>

#include "bench_step.h"
#include "core/plan/step_plan.h"
#include "slurmstepd/task_environment.h"
#include "spank_double.h"

namespace bootstrap {
namespace {

void apply_to_task(benchmark::State& state, const char* frameworks) {
  Settings settings;
  settings.frameworks = {*parse_frameworks(frameworks), Source::kOption};
  const auto facts = read_facts(environment_of_step(state.range(0)), kStepId, tasks_of_node());
  if (!facts) return state.SkipWithError(facts.error().message.c_str());
  auto plan = make_step_plan(*facts, settings);
  if (!plan) return state.SkipWithError(plan.error().message.c_str());
  auto& slurm = spank_double();
  slurm.task = 3;
  CommonEnvironment common;
  common.put(the_spank_handle(), *plan);
  for (auto _ : state) {
    slurm.task_environment = {{"SLURM_PROCID", "3"}};
    const auto status = set_task_environment(the_spank_handle(), *plan, common, settings, 3, 3);
    if (!status) return state.SkipWithError(status.error().message.c_str());
  }
  if (slurm.task_environment.find("RANK") == slurm.task_environment.end()) state.SkipWithError("RANK was not set");
  state.counters["variables"] = static_cast<double>(slurm.task_environment.size()) - 1;
}
BENCHMARK_CAPTURE(apply_to_task, auto, "auto") -> Arg(2) -> Arg(12500) -> Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(apply_to_task, all, "all")->Arg(2)->Arg(1000)->Arg(12500)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace bootstrap
