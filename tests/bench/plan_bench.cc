// What user_init and one task_init compute, from two nodes to 12,500: environment in, plan out.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <string>

#include "core/plan/task_plan.h"

namespace bootstrap {
namespace {

// Eight tasks and GPUs on each node.
Environment environment_of_step(std::int64_t nodes) {
  Environment environment;
  // As many other variables as a login environment has.
  for (int i = 0; i < 120; ++i) environment.set("SOME_VARIABLE_" + std::to_string(i), std::string(60, 'x'));
  const auto last = std::to_string(100000 + nodes).substr(1);
  environment.set("SLURM_JOB_ID", "12");
  environment.set("SLURM_STEP_NODELIST", "node[00001-" + last + "]");
  environment.set("SLURM_STEP_TASKS_PER_NODE", "8(x" + std::to_string(nodes) + ")");
  environment.set("SLURM_STEP_NUM_TASKS", std::to_string(nodes * 8));
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/block");
  environment.set("SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7");
  environment.set("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
  return environment;
}

LocalTasks tasks_of_node() {
  LocalTasks local;
  local.host = "node00001";
  local.ranks = {0, 1, 2, 3, 4, 5, 6, 7};
  return local;
}

constexpr StepId kStepId{.job = 12, .step = 0, .restart = 0};

// The variables that the plan really has: a measurement of a plan that was refused would be worth nothing.
void plan_node(benchmark::State& state, const Settings& settings) {
  const auto environment = environment_of_step(state.range(0));
  const auto local = tasks_of_node();
  std::size_t variables = 0;
  for (auto _ : state) {
    const auto facts = read_facts(environment, kStepId, local);
    const auto plan = plan_step(*facts, settings);
    if (!plan) return state.SkipWithError(plan.error().message.c_str());
    auto task = plan_task(*plan, *facts, settings, assumed_task(*plan, *facts, 0));
    variables = task.variables.size();
    benchmark::DoNotOptimize(task);
  }
  state.counters["variables"] = static_cast<double>(variables);
}

void make_plan_of_node(benchmark::State& state) { plan_node(state, {}); }
BENCHMARK(make_plan_of_node)->Arg(2)->Arg(128)->Arg(1000)->Arg(12500)->Unit(benchmark::kMicrosecond);

// The most that a user can ask for: the variables of every framework, TF_CONFIG with all hosts among them.
void make_plan_of_all_frameworks(benchmark::State& state) {
  Settings settings;
  settings.frameworks = {*parse_frameworks("all"), Source::kOption};
  plan_node(state, settings);
}
BENCHMARK(make_plan_of_all_frameworks)->Arg(2)->Arg(128)->Arg(1000)->Arg(12500)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace bootstrap
