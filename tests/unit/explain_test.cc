// The table as the user sees it, and its JSON.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/explain.h"

#include <gtest/gtest.h>

#include "core/util/ranges.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

std::string explain(const Environment& environment, const Settings& settings = {}) {
  const auto facts = *read_task_facts(environment);
  return explain_text(facts, settings, "a GPU for each task", *make_step_plan(facts, settings));
}

TEST(Explain, ReadsLikeThis) {
  EXPECT_EQ(explain(two_by_two()),
            R"(bootstrap: StepId=12.0: 4 tasks on 2 nodes; a GPU for each task

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
GROUP_RANK                0 0 1 1              NODE_RANK, as torchrun names it
GROUP_WORLD_SIZE          2                    SLURM_STEP_NUM_NODES
MASTER_ADDR               node001              first host of SLURM_STEP_NODELIST
MASTER_PORT               20444                step 12.0 in 20000-29999
CUDA_DEVICE_ORDER         PCI_BUS_ID           Slurm counts GPUs in this order
CUDA_VISIBLE_DEVICES      0,1                  Slurm's order, the same in all
                                               tasks of the node
BOOTSTRAP_GPU             0 1 0 1              the task's own GPU in that list
SLURM_BOOTSTRAP_STEP      12.0.0               job.step.restart: marks our
                                               values
SLURM_BOOTSTRAP_EXPORTS   ...                  checksums: tell our values from
                                               yours

FOR         VARIABLES AND VALUES (OF RANK 0)
lightning   SLURM_NTASKS_PER_NODE=2
jax         JAX_COORDINATOR_PORT=29750 JAX_COORDINATOR_ADDRESS=node001:29750
            JAX_LOCAL_DEVICE_IDS=0
Not set for torchrun: torchrun is one task on each node, and here are several;
deepspeed: DeepSpeed needs no more than what is always set; tensorflow: programs
that find TF_CONFIG train together, also those that were to run alone;
torchcomms: under torchrun they would hide torchrun's own ranks.

Settings: all at their default
Port 20444 of node001 is held for rank 0 until the step ends.
)");
}

TEST(Explain, ShowsWhatOverrodeWhat) {
  auto environment = two_by_two();
  environment.set("MASTER_PORT", "29500");
  environment.set("MASTER_ADDR", "somewhere");
  Settings settings;
  settings.address = {"%h-ib0", Source::kOption};
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

// A table goes to the terminal of whoever asks, and a line feed would let a value write rows of its own.
TEST(Explain, ShowsNoControlCharacterOfUsers) {
  auto environment = two_by_two();
  environment.set("MASTER_ADDR", "evil\x1b]0;title\x07\nRANK  9");
  environment.set("MASTER_PORT", "2\r3");
  environment.set("TF_CONFIG", "\x1b[2J");
  environment.set("ROCR_VISIBLE_DEVICES",
                  "0\xc2\x9b"
                  "31m");
  environment.set("GROUP_RANK", "plain \"words\"");
  Settings settings;
  settings.shared_dir = {"/shared/\xc2\x9b", Source::kEnvironment};
  const auto text = explain(environment, settings);
  const auto is_plain = [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); };
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), is_plain)) << text;
  EXPECT_EQ(text.find("\nRANK  9"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("evil\x1b]0;title\x07\x0aRANK  9")"), std::string::npos) << text;
  EXPECT_NE(text.find(" plain \"words\" "), std::string::npos) << "what is plain stays as it is\n" << text;
}

TEST(Explain, FitsIntoEightyColumns) {
  auto environment = step_of("node[00001-12500]", "8(x12500)", 100000, "node00001");
  environment.set("SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7");
  environment.set("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
  std::string map;
  for (int i = 0; i < 8; ++i) map += (i == 0 ? "" : ",") + std::string("0,1x2,0");
  Settings settings;
  settings.when = {When::kAlways, Source::kSite};
  settings.port = {2345, Source::kOption};
  settings.address = {"%h-a-suffix-of-the-fabric", Source::kSite};
  const auto text = explain(environment, settings);
  for (const auto line : split(text, '\n')) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_LE(split(text, '\n').size(), 64U);
  EXPECT_NE(text.find("0 to 99999 by rank"), std::string::npos);
  EXPECT_NE(text.find("... and 12484 more nodes"), std::string::npos);
}

TEST(Explain, JsonEscapesWhatUsersSet) {
  auto environment = two_by_two();
  environment.set("MASTER_ADDR", "a\"b\\c\n\xff");
  const auto facts = *read_task_facts(environment);
  const auto json = explain_json(facts, {}, "a GPU for each task", *make_step_plan(facts, {}));
  EXPECT_NE(json.find(R"("previous": "a\"b\\c\u000a\u00ff")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"({"name": "RANK", "by_rank": ["0", "1", "2", "3"], "from": "SLURM_PROCID")"),
            std::string::npos);
}

TEST(Ranges, AreShort) {
  EXPECT_EQ(write_ranges({}), "");
  EXPECT_EQ(write_ranges({7}), "7");
  EXPECT_EQ(write_ranges({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(write_ranges({0, 2, 4, 5}), "0,2,4-5");
}

}  // namespace
}  // namespace bootstrap
