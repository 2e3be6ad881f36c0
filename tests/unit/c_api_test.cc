// The C interface in this process' own environment.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <string>

#include "bootstrap/bootstrap.h"
#include "core/settings/variables.h"
#include "step_environment.h"

extern "C" int c_header_opens_and_closes(void);

namespace bootstrap {
namespace {

class CApi : public testing::Test {
 protected:
  void enter(const Environment& environment) {
    ::clearenv();
    for (const auto& [name, value] : environment.all()) ::setenv(name.c_str(), value.c_str(), 1);
  }
  void TearDown() override { enter(before_); }

 private:
  Environment before_ = read_entries(environ, UnknownVariables::kKeep);
};

TEST_F(CApi, TellsWhoIAm) {
  enter(two_by_two(3));
  bootstrap_t* job = nullptr;
  ASSERT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
  EXPECT_EQ(bootstrap_rank(job), 3);
  EXPECT_EQ(bootstrap_size(job), 4);
  EXPECT_EQ(bootstrap_local_rank(job), 1);
  EXPECT_EQ(bootstrap_local_size(job), 2);
  EXPECT_EQ(bootstrap_node_rank(job), 1);
  EXPECT_EQ(bootstrap_node_count(job), 2);
  EXPECT_EQ(bootstrap_cross_rank(job), 1);
  EXPECT_EQ(bootstrap_cross_size(job), 2);
  EXPECT_EQ(bootstrap_device(job), 1);
  EXPECT_STREQ(bootstrap_master_addr(job), "node001");
  EXPECT_EQ(bootstrap_master_port(job), 20444);
  bootstrap_close(job);
}

TEST_F(CApi, TheDeviceIsTheOneThatTheListSays) {
  const auto device = [this](const Environment& environment) {
    enter(environment);
    bootstrap_t* job = nullptr;
    EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
    const auto found = bootstrap_device(job);
    EXPECT_EQ(bootstrap_local_rank(job), 1);
    bootstrap_close(job);
    return found;
  };
  auto environment = two_by_two(3);
  EXPECT_EQ(device(environment), 1);
  environment.set("SLURM_BOOTSTRAP_GPU", "first");
  EXPECT_EQ(device(environment), 0);
  environment.set("SLURM_BOOTSTRAP_GPU", "off");
  EXPECT_EQ(device(environment), -1);
  environment.unset("SLURM_BOOTSTRAP_GPU");
  environment.set("CUDA_VISIBLE_DEVICES", "0");  // bound by Slurm, without the plugin
  EXPECT_EQ(device(environment), -1);
  EXPECT_EQ(bootstrap_device(nullptr), -1);
}

TEST_F(CApi, SaysWhyItCannot) {
  enter({});
  bootstrap_t* job = reinterpret_cast<bootstrap_t*>(1);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_ERROR_MISSING);
  EXPECT_EQ(job, nullptr);
  EXPECT_NE(std::strstr(bootstrap_last_error(), "SLURM_JOB_ID is not set"), nullptr);

  auto environment = two_by_two();
  environment.set("MASTER_PORT", "http");
  enter(environment);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << "it is no port, and gives way";
  bootstrap_close(job);
  environment.set("SLURM_STEP_NUM_TASKS", "9");
  enter(environment);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_ERROR_DISAGREEMENT);
}

TEST_F(CApi, BearsWrongArguments) {
  EXPECT_EQ(bootstrap_open(nullptr, nullptr), BOOTSTRAP_ERROR_INVALID);
  EXPECT_EQ(bootstrap_rank(nullptr), -1);
  EXPECT_EQ(bootstrap_master_addr(nullptr), nullptr);
  EXPECT_EQ(bootstrap_master_port(nullptr), -1);
  bootstrap_close(nullptr);
  EXPECT_EQ(bootstrap_version(), 100);
}

TEST_F(CApi, CompilesAsC) {
  enter(two_by_two(0));
  EXPECT_EQ(c_header_opens_and_closes(), 0 + 4 + 0 + 2 + 0 + 2 + 0 + 2 + 20444);
}

}  // namespace
}  // namespace bootstrap
