// Environments as values, and captured ones from files.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/settings/variables.h"
#include "probe/own_process.h"

namespace bootstrap {
namespace {

TEST(EnvironmentValue, ReadsEntriesAsGetenvDoes) {
  const std::array<const char*, 7> entries{"A=1", "B", "=C", "D=", "A=2", "E=x=y", nullptr};
  const auto environment = read_entries(entries.data(), UnknownVariables::kKeep);
  EXPECT_EQ(environment.get("A"), "1");
  EXPECT_EQ(environment.get("E"), "x=y");
  EXPECT_FALSE(environment.has("B"));
  EXPECT_FALSE(environment.has("D"));  // empty
  EXPECT_EQ(environment.all().size(), 3U);
  EXPECT_TRUE(read_entries(nullptr, UnknownVariables::kKeep).all().empty());
}

class Capture : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "capture" + std::to_string(::getpid()); }
  void TearDown() override { ::unlink(path_.c_str()); }
  void write(std::string_view text) { std::ofstream(path_, std::ios::binary) << text; }

  std::string path_;
};

TEST_F(Capture, OfBothForms) {
  write(std::string_view("A=1\nmore\0B=2\0", 13));
  EXPECT_EQ(captured_environment(path_)->get("A"), "1\nmore");
  EXPECT_EQ(captured_environment(path_)->get("B"), "2");
  write("A=1\nB=2\n");
  EXPECT_EQ(captured_environment(path_)->get("B"), "2");
}

// The table of a node took 3 GB for such a list.
TEST_F(Capture, HasTheSameLimits) {
  std::string gpus = "SLURM_STEP_GPUS=0";
  for (int i = 1; i < 20'000; ++i) gpus += ",1";
  write(gpus + "\n");
  EXPECT_TRUE(captured_environment(path_)->is_refused("SLURM_STEP_GPUS"));
}

TEST_F(Capture, OfWhatIsNoEnvironment) {
  for (const auto text : {std::string_view("#!/bin/sh\nA=1\n"),
                          std::string_view("\x7f"
                                           "ELF\0A=1\0",
                                           9),
                          std::string_view("two words = 1\n"), std::string_view("")}) {
    write(text);
    const auto environment = captured_environment(path_);
    ASSERT_FALSE(environment) << text;
    EXPECT_NE(environment.error().message.find("does not hold NAME=VALUE entries"), std::string::npos);
  }
  write(std::string_view("BASH_FUNC_module%%=() {\n}\0", 26));
  EXPECT_TRUE(captured_environment(path_));
}

TEST_F(Capture, SaysWhatItCannotRead) {
  const auto environment = captured_environment("/nonexistent/file");
  ASSERT_FALSE(environment);
  EXPECT_EQ(environment.error().message, "cannot read /nonexistent/file: No such file or directory");
}

}  // namespace
}  // namespace bootstrap
