// The table as the user sees it, and its JSON.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/explain.h"

#include <gtest/gtest.h>

#include "core/plan/plan.h"
#include "core/util/text.h"
#include "known_node.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

const std::string kVerdict = "SET UP: a GPU for each task";

// The plan as in slurmstepd, which knows all tasks of its node, for rank 0 only.
std::string explain(const Environment& environment, const Settings& settings = {}, bool shows_all = true) {
  auto facts = *read_task_facts(environment);
  const auto plan = *make_plan(facts, settings);
  const TaskPlan task{plan.variables, {}};
  facts.is_one_task = false;
  return explain_text(facts, settings, plan.step, {&task, 1},
                      {.verdict = kVerdict, .reserves_port = true, .shows_all = shows_all, .versions = "plugin 1"});
}

TEST(Explain, ShowsTheDefaultRows) {
  EXPECT_EQ(explain(two_by_two(), {}, false),
            R"(bootstrap: StepId=12.0: SET UP: a GPU for each task

NODE RANK  HOST                RANKS (LOCAL RANK 0 FIRST)
0          node001             0-1
1          node002             2-3

VARIABLE                  VALUE (RANK 0 FIRST) FROM
RANK                      0 1 2 3              SLURM_PROCID
WORLD_SIZE                4                    SLURM_STEP_NUM_TASKS
LOCAL_RANK                0 1 0 1              place among the tasks of the node
LOCAL_WORLD_SIZE          2                    tasks on the node
NODE_RANK                 0 0 1 1              nodes in order of their lowest
                                               rank
MASTER_ADDR               node001              first host of SLURM_STEP_NODELIST
MASTER_PORT               20444                step 12.0 in 20000-29999
CUDA_VISIBLE_DEVICES      0,1                  Slurm's order, the same in all
                                               tasks of the node
BOOTSTRAP_GPU             0 1 0 1              the task's own GPU in that list
also set                  GROUP_RANK, GROUP_WORLD_SIZE, CUDA_DEVICE_ORDER

FOR         VARIABLES AND VALUES (OF RANK 0)
lightning   SLURM_NTASKS_PER_NODE=2
jax         JAX_COORDINATOR_PORT=29750 JAX_COORDINATOR_ADDRESS=node001:29750
            JAX_LOCAL_DEVICE_IDS=0

Settings: none
Port 20444 of node001 is reserved for rank 0 until the step ends.
While a step runs, slurm-bootstrap status shows which rank is out of step.
Versions: plugin 1
)");
}

TEST(Explain, ShowsTheOtherRowsOnRequest) {
  const auto text = explain(two_by_two());
  for (const auto* row :
       {"\nGROUP_RANK ", "\nCUDA_DEVICE_ORDER ", "\nSLURM_BOOTSTRAP_STEP ", "\nSLURM_BOOTSTRAP_EXPORTS ",
        "\nNot set for torchrun: torchrun needs one task on each node, and this step has"}) {
    EXPECT_NE(text.find(row), std::string::npos) << row << text;
    EXPECT_EQ(explain(two_by_two(), {}, false).find(row), std::string::npos) << row;
  }
}

TEST(Explain, ShowsATaskItsOwnValues) {
  const auto task = *read_own_plan(two_by_two(3));
  const auto text = explain_text(task.facts, task.settings, task.step, {&task.task, 1},
                                 {.verdict = task.verdict, .is_set_up = false});
  EXPECT_EQ(text.find("bootstrap: StepId=12.0: NOT SET UP: "), 0U) << text;
  EXPECT_NE(text.find("\nVARIABLE                  VALUE IF SET UP"), std::string::npos) << text;
  EXPECT_NE(text.find("\nRANK                      3  "), std::string::npos) << text;
  EXPECT_NE(text.find("\nBOOTSTRAP_GPU             1  "), std::string::npos) << text;
  EXPECT_EQ(text.find("Port "), std::string::npos) << "no process has one\n" << text;
}

TEST(Notes, NameUnevenTasksAndUnusedGpus) {
  const auto notes = [](Environment environment) {
    const auto facts = *read_task_facts(environment);
    return step_notes(facts, *plan_step(facts, {}));
  };
  EXPECT_TRUE(notes(two_by_two()).empty());
  auto environment = step_of("node[001-002]", "3,1", 4, "node001");
  EXPECT_EQ(only(notes(environment)),
            "Slurm spreads the 4 tasks unevenly (1 to 3 on a node); use --ntasks-per-node=2 for an even spread");
  EXPECT_TRUE(notes(step_of("node[001-002]", "2,1", 3, "node001")).empty()) << "three tasks cannot be even";
  environment = step_of("node001", "1", 1, "node001");
  environment.set("SLURM_STEP_GPUS", "0,1");
  environment.set("CUDA_VISIBLE_DEVICES", "0,1");
  EXPECT_EQ(only(notes(environment)),
            "node001 has 1 task and 2 GPUs: a program that uses one GPU for each task leaves 1 unused; use "
            "--ntasks-per-node=2 for a task for each GPU");
}

TEST(Notes, NameAFarGpu) {
  auto facts = *read_task_facts(two_by_two());
  facts.decision.set_up = SetUp::kWorld;
  EXPECT_EQ(note_far_gpu(facts, 1, cpus("0-3"), cpus("4-7")),
            "rank 1 runs on cores 0-3, and its GPU is near to cores 4-7; use --bootstrap=on for GPUs near to the cores "
            "of their tasks");
  EXPECT_EQ(note_far_gpu(facts, 1, cpus("0-4"), cpus("4-7")), "") << "one of its cores is near";
  EXPECT_EQ(note_far_gpu(facts, 1, {}, cpus("4-7")), "");
}

TEST(Notes, NameATaskWithGpusAndOneCore) {
  auto environment = two_by_two();
  environment.unset("SLURM_STEP_GPUS");
  environment.unset("CUDA_VISIBLE_DEVICES");
  const auto without = *read_task_facts(environment);
  EXPECT_EQ(note_one_core(without, *plan_step(without, {}), 0), "");
  const auto facts = *read_task_facts(two_by_two());
  EXPECT_EQ(note_one_core(facts, *plan_step(facts, {}), 0),
            "rank 0 has one core and 1 GPU: data loaders share this core with the training; use srun "
            "--cpus-per-task=N for N cores, also in a job that has them, because srun does not take the number of "
            "sbatch");
}

TEST(Notes, HaveALineForEachDecision) {
  auto environment = with(two_by_two(), {{"MASTER_PORT", "29500"}, {"WORLD_SIZE", "1"}});
  const auto facts = *read_task_facts(environment);
  const std::vector<std::string> expected{"WORLD_SIZE=1 is replaced by 4 (this step has 4)",
                                          "MASTER_ADDR=node001 (first host of SLURM_STEP_NODELIST)",
                                          "MASTER_PORT=29500 is kept (set by the user), reserved until the step ends"};
  const auto plan = *make_plan(facts, {});
  EXPECT_EQ(decision_lines(facts, plan.step, {plan.variables, {}}, true), expected);
}

TEST(Explain, ShowsBothValuesIfOneOverridesTheOther) {
  auto environment = with(two_by_two(), {{"MASTER_PORT", "29500"}, {"MASTER_ADDR", "somewhere"}});
  const Settings settings{.address = {"%h-ib0", Source::kOption}};
  const auto text = explain(environment, settings);
  EXPECT_NE(text.find("MASTER_PORT               29500                kept: set by the user\n"
                      "                          20444                not used: step 12.0 in\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("MASTER_ADDR               node001-ib0          --bootstrap-addr\n"
                      "                          somewhere            replaced: asked for by option or\n"),
            std::string::npos)
      << text;
}

// The table goes to the user's terminal, and a value with a line feed could add rows.
TEST(Explain, ShowsNoControlCharacterOfUsers) {
  auto environment = with(two_by_two(), {{"MASTER_ADDR", "evil\x1b]0;title\x07\nRANK  9"},
                                         {"MASTER_PORT", "2\r3"},
                                         {"TF_CONFIG", "\x1b[2J"},
                                         {"ROCR_VISIBLE_DEVICES",
                                          "0\xc2\x9b"
                                          "31m"},
                                         {"GROUP_RANK", "plain \"words\""}});
  const Settings settings{.shared_dir = {"/shared/\xc2\x9b", Source::kEnvironment}};
  const auto text = explain(environment, settings);
  const auto is_plain = [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); };
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), is_plain)) << text;
  EXPECT_EQ(text.find("\nRANK  9"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("evil\x1b]0;title\x07\x0aRANK  9")"), std::string::npos) << text;
  EXPECT_NE(text.find(" plain \"words\" "), std::string::npos) << "plain text does not change\n" << text;
}

TEST(Explain, FitsIntoEightyColumns) {
  auto environment = with(step_of("node[00001-12500]", "8(x12500)", 100000, "node00001"),
                          {{"SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"}});
  Settings settings{.when = {When::kAlways, Source::kSite}};
  settings.port = {2345, Source::kOption};
  settings.address = {"%h-a-suffix-of-the-fabric", Source::kSite};
  const auto text = explain(environment, settings);
  for (const auto line : split(text, '\n')) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_LE(split(text, '\n').size(), 64U);
  EXPECT_NE(text.find("0 to 99999 by rank"), std::string::npos);
  EXPECT_NE(text.find("... and 12484 more nodes"), std::string::npos);
}

TEST(Explain, JsonEscapesWhatUsersSet) {
  auto environment = with(two_by_two(), {{"MASTER_ADDR", "a\"b\\c\n\xff"}});
  const auto facts = *read_task_facts(environment);
  const auto plan = *make_plan(facts, {});
  const auto json = explain_json(facts, {}, plan.step, {plan.variables, {}}, {.verdict = kVerdict});
  EXPECT_NE(json.find("\"set_up\": true"), std::string::npos);
  EXPECT_NE(json.find(R"("previous": "a\"b\\c\u000a\u00ff")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"({"name": "RANK", "by_rank": ["0", "1", "2", "3"], "from": "SLURM_PROCID")"),
            std::string::npos);
}

}  // namespace
}  // namespace bootstrap
