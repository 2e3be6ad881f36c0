// What srun reads of the program that a step starts: regular files that are executable, and nothing else is opened.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/util/text.h"
#include "probe/files.h"
#include "srun/srun_facts.h"

namespace bootstrap {
namespace {

class ProgramHeadTest : public testing::Test {
 protected:
  ProgramHeadTest() : folder_(cat({testing::TempDir(), "program-head-", std::to_string(::getpid())})) {
    std::filesystem::create_directories(folder_);
    std::ofstream(at("program")) << "#!/bin/sh\n";
    EXPECT_EQ(::chmod(at("program").c_str(), 0755), 0);
    EXPECT_EQ(::mkfifo(at("fifo").c_str(), 0755), 0);
  }
  ~ProgramHeadTest() override { std::filesystem::remove_all(folder_); }

  std::string at(std::string_view name) const { return cat({folder_, "/", name}); }

 private:
  std::string folder_;
};

TEST_F(ProgramHeadTest, IsTheBeginningOfAnExecutableFile) {
  EXPECT_EQ(head_of_program(at("program")), "#!/bin/sh\n");
  std::ofstream(at("data")) << "data";
  EXPECT_EQ(head_of_program(at("data")), "");
  for (const auto& path : {at("none"), at("fifo"), at("."), std::string("/dev/zero")}) {
    EXPECT_EQ(head_of_program(path), std::nullopt) << path;
  }
}

// A program that waits to write into the FIFO would begin to, if somebody opened it for a moment.
TEST_F(ProgramHeadTest, AFileThatChangesPlacesWithAFifoIsNotTakenForIt) {
  const Descriptor watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(::inotify_add_watch(watch.get(), at("fifo").c_str(), IN_OPEN), 0);
  std::atomic<bool> is_over = false;
  std::thread swap([&] {
    while (!is_over) {
      EXPECT_EQ(::renameat2(AT_FDCWD, at("program").c_str(), AT_FDCWD, at("fifo").c_str(), RENAME_EXCHANGE), 0);
    }
  });
  int files = 0;
  for (int others = 0; files < 20'000 || others < 20'000;) ++(head_of_program(at("program")) ? files : others);
  is_over = true;
  swap.join();
  char event = 0;
  EXPECT_EQ(::read(watch.get(), &event, sizeof event), -1);
  EXPECT_EQ(errno, EAGAIN) << "the FIFO was opened";
}

}  // namespace
}  // namespace bootstrap
