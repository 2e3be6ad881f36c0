// A check's facts about the machine, from files in place of /proc and /sys, and from this machine.
// SPDX-License-Identifier: Apache-2.0
#include "probe/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "fake_machine.h"

namespace bootstrap {
namespace {

TEST(Machine, ThisOneHasANameAKernelAndALibrary) {
  const auto machine = read_machine();
  EXPECT_FALSE(machine.host.empty());
  EXPECT_TRUE(machine.kernel.starts_with("Linux ")) << machine.kernel;
  EXPECT_TRUE(machine.libc.starts_with("glibc 2.")) << machine.libc;
  EXPECT_GT(machine.shm_free, 0U);
}

TEST(Machine, DriverAndRdmaDevicesAreFoundWhereTheyAre) {
  const FakeMachine fake;
  EXPECT_EQ(read_machine(fake.root()).nvidia_module, "");
  EXPECT_EQ(read_machine(fake.root()).rdma_devices, 0U);
  fake.write("/sys/module/nvidia/version", "580.65.06\n");
  fake.write("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  fake.write("/sys/class/infiniband/mlx5_1/node_type", "1: CA\n");
  const auto machine = read_machine(fake.root());
  EXPECT_EQ(machine.nvidia_module, "580.65.06");
  EXPECT_EQ(machine.rdma_devices, 2U);
  EXPECT_EQ(machine.shm_free, 0U);  // there is no /dev/shm in it
}

TEST(Machine, TheLimitOfLockedMemoryIsThatOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  auto small = before;
  small.rlim_cur = 65536;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
  EXPECT_EQ(read_machine().locked_memory, 65536U);
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

}  // namespace
}  // namespace bootstrap
