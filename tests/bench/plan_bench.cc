// What user_init computes, from two nodes to 12,500: environment in, plan out.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include "bench_step.h"
#include "core/plan/step_plan.h"

namespace bootstrap {
namespace {

// The variables that the plan really has: a measurement of a plan that was refused would be worth nothing.
void plan_node(benchmark::State& state, const Settings& settings) {
  const auto environment = environment_of_step(state.range(0));
  const auto local = tasks_of_node();
  std::size_t variables = 0;
  for (auto _ : state) {
    const auto facts = read_facts(environment, kStepId, local);
    auto plan = make_step_plan(*facts, settings);
    if (!plan) return state.SkipWithError(plan.error().message.c_str());
    variables = plan->variables.size();
    benchmark::DoNotOptimize(plan);
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
