// The lists of GPUs on real machines are those that people would write by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "core/plan/node_gpus.h"
#include "core/plan/step_plan.h"
#include "core/util/text.h"
#include "known_machine.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

std::vector<CpuSet> cores_of_tasks(std::string_view text) {
  std::vector<CpuSet> cores;
  for (const auto list : split(text, ' ')) cores.push_back(*CpuSet::parse_list(list == "-" ? "" : list));
  return cores;
}

StepFacts facts_on(const Topology& topology, std::size_t tasks) {
  const auto vendor = topology.gpus.empty() ? GpuVendor::kNvidia : topology.gpus.front().vendor;
  const auto gpus = topology.gpus.empty() ? std::size_t{4} : gpus_of(topology, vendor).size();
  std::vector<std::size_t> numbers(gpus);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const auto list = join(numbers, ",");
  auto environment = step_of("node001", std::to_string(tasks), static_cast<int>(tasks), "node001");
  environment.set("SLURM_STEP_NUM_NODES", "1");
  environment.unset("CUDA_VISIBLE_DEVICES");
  environment.set("SLURM_STEP_GPUS", list);
  environment.set(vendor == GpuVendor::kAmd ? "ROCR_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES", list);
  LocalTasks local;
  local.host = "node001";
  for (std::size_t rank = 0; rank < tasks; ++rank) local.ranks.push_back(static_cast<Rank>(rank));
  auto facts = *read_facts(environment, {12, 0, 0}, local);
  facts.topology = topology;
  return facts;
}

// Like slurmstepd: makes a plan in user_init, and orders it when the tasks have their cores.
NodeGpus plan_on(const Topology& topology, const std::vector<CpuSet>& cores) {
  Settings settings;
  settings.gpu_share = {true, Source::kOption};
  auto plan = *make_step_plan(facts_on(topology, cores.size()), settings);
  if (plan.gpus->order_matters()) order_gpus(*plan.gpus, cores, topology);
  return *plan.gpus;
}

struct Golden {
  std::string_view machine;
  std::string_view cores;  // of each task; "-": not bound
  std::string_view list;
};

const Golden kGoldens[] = {
    // Two packages of four GPUs. Tasks in blocks, as --distribution=block:block binds them.
    {"dgx-h100", "0-13 14-27 28-41 42-55 56-69 70-83 84-97 98-111", "0,1,2,3,4,5,6,7"},
    // Tasks in turn on the packages, Slurm's default: even ones are on the first, and GPUs 0, 2, 5 and 7 need not move.
    {"dgx-h100", "0-13 56-69 14-27 70-83 28-41 84-97 42-55 98-111", "0,4,2,6,1,5,3,7"},
    {"dgx-h100", "56-69 70-83 84-97 98-111 0-13 14-27 28-41 42-55", "4,5,6,7,0,1,2,3"},
    {"dgx-h100", "- - - - - - - -", "0,1,2,3,4,5,6,7"},
    {"dgx-h100", "0-223 0-223 0-223 0-223 0-223 0-223 0-223 0-223", "0,1,2,3,4,5,6,7"},
    // Hyperthreads of the second package: the machine's topology counts, not the numbers.
    {"dgx-h100", "168-223 112-167 - -", "6,0,4,2,7,1,5,3"},
    // Fewer tasks than GPUs: groups of neighbours, the first of each group at the task's own place.
    {"dgx-h100", "0-55 56-111", "0,4,1,5,2,6,3,7"},
    {"dgx-h100", "56-111 0-55", "4,0,5,1,6,2,7,3"},
    {"dgx-h100", "- -", "0,4,1,5,2,6,3,7"},
    {"dgx-h100", "- - - -", "0,2,4,6,1,3,5,7"},
    {"dgx-h100", "-", "0,1,2,3,4,5,6,7"},
    {"dgx-h100", "56-111", "4,5,6,7,0,1,2,3"},
    {"dgx-h100", "0-13 14-27 56-69", "0,2,4,1,3,5,6,7"},  // two are left over
    {"dgx-1", "0-19,40-59 20-39,60-79 0-19,40-59 20-39,60-79 0-19 20-39 0-19 20-39", "0,4,2,6,1,5,3,7"},
    // Eight NUMA nodes, GPUs at four of them. Each task beside its GPU, as NVIDIA binds them.
    {"dgx-a100", "48-63 48-63 16-31 16-31 112-127 112-127 80-95 80-95", "0,1,2,3,4,5,6,7"},
    // One task on each NUMA node: those without GPUs get one of their package.
    {"dgx-a100", "0-15 16-31 32-47 48-63 64-79 80-95 96-111 112-127", "0,3,2,1,4,7,6,5"},
    {"dgx-a100", "0-63 64-127", "0,4,1,5,2,6,3,7"},
    // What LUMI's users write by hand for a task on each die: 4,5,2,3,6,7,0,1.
    {"eight-gpu-two-per-numa", "0-7 8-15 16-23 24-31 32-39 40-47 48-55 56-63", "4,5,2,3,6,7,0,1"},
    {"two-socket-4gpu", "0-9 40-49 10-19 50-59", "0,2,1,3"},
    {"two-socket-4gpu", "0-9 10-19 20-29 30-39", "0,1,2,3"},              // all on one package: no order is better
    {"two-socket-4gpu", "0-9 40-49 10-19 50-59 20-29 60-69", "0,2,1,3"},  // six share four
    {"gh200-quad", "216-287 144-215 72-143 0-71", "3,2,1,0"},
    {"gh200-quad", "0-71 72-143 144-215 216-287", "0,1,2,3"},
    {"none", "0-1 2-3 - -", "0,1,2,3"},
};

TEST(GoldenPlan, RealMachines) {
  for (const auto& golden : kGoldens) {
    const auto plan = plan_on(known_machine(std::string(golden.machine)), cores_of_tasks(golden.cores));
    EXPECT_EQ(plan.ordered_list(), golden.list) << golden.machine << ": " << golden.cores;
  }
}

TEST(GoldenPlan, TheOrderMattersOnlyIfGpusAreInDifferentPlaces) {
  EXPECT_FALSE(plan_on(known_machine("none"), cores_of_tasks("- -")).order_matters());
  EXPECT_TRUE(plan_on(known_machine("dgx-h100"), cores_of_tasks("- -")).order_matters());
}

TEST(GoldenPlan, CoresNearAreThoseOfAllGpusOfATask) {
  const auto plan = plan_on(known_machine("gh200-quad"), cores_of_tasks("- -"));
  EXPECT_EQ(cores_near(plan, view_of(plan, 0)).to_list(), "0-143");
  const auto whole = plan_on(known_machine("dgx-h100"), cores_of_tasks("56-69"));
  EXPECT_EQ(cores_near(whole, view_of(whole, 0)).to_list(), "0-223");
}

}  // namespace
}  // namespace bootstrap
