// The lists of GPUs that Slurm writes, and the GPU that each entry means.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_list.h"

#include <gtest/gtest.h>

#include "step_environment.h"

namespace bootstrap {
namespace {

std::optional<GpuList> list_of(const std::string& variable, const std::string& list, const std::string& ids = "0,1") {
  return read_gpu_list(environment_of({{"SLURM_STEP_GPUS", ids}, {variable.c_str(), list}}));
}

using Ids = std::vector<std::uint32_t>;

TEST(GpuList, CountsInTheStepOrOnTheNode) {
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "0,1", "2,3")->ids, (Ids{2, 3}));  // ConstrainDevices=yes
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "2,3", "2,3")->ids, (Ids{2, 3}));
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "0,1", "0,1")->ids, (Ids{0, 1}));
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "0,1", "1,2")->ids, (Ids{1, 2}));
}

TEST(GpuList, IsReadInAnyOrder) {
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "1,0", "2,3")->ids, (Ids{3, 2}));
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "3,2", "2,3")->ids, (Ids{3, 2}));
  EXPECT_EQ(list_of("CUDA_VISIBLE_DEVICES", "3", "2,3")->ids, (Ids{3}));
}

TEST(GpuList, TakesOneVariableOfThoseThatSlurmSets) {
  const auto all = read_gpu_list(environment_of({{"SLURM_STEP_GPUS", "0,1"},
                                                 {"CUDA_VISIBLE_DEVICES", "0,1"},
                                                 {"ROCR_VISIBLE_DEVICES", "0,1"},
                                                 {"ZE_AFFINITY_MASK", "0,1"}}));
  EXPECT_EQ(all->kind->variable, "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(list_of("ROCR_VISIBLE_DEVICES", "0,1")->kind->vendor, GpuVendor::kAmd);
  EXPECT_EQ(list_of("ZE_AFFINITY_MASK", "0,1")->kind->vendor, GpuVendor::kIntel);
  EXPECT_FALSE(list_of("ZE_AFFINITY_MASK", "0,1")->kind->is_ordered);
}

// HIP counts within Slurm's list, up to the first number that is too large.
TEST(GpuList, TheUsersOwnChoicesAreKept) {
  const auto kind_below = [](const char* hip, const char* list, const char* variable = "ROCR_VISIBLE_DEVICES") {
    const auto environment =
        environment_of({{"SLURM_STEP_GPUS", list}, {variable, list}, {"HIP_VISIBLE_DEVICES", hip}});
    const auto found = read_gpu_list(environment);
    EXPECT_EQ(has_users_hip_list(environment), !found) << hip;
    return found ? std::string(found->kind->variable) : "none";
  };
  EXPECT_EQ(kind_below("0,1", "2,3"), "ROCR_VISIBLE_DEVICES");
  EXPECT_EQ(kind_below("0,1,2,3", "2,3"), "ROCR_VISIBLE_DEVICES");
  EXPECT_EQ(kind_below("", "2,3"), "ROCR_VISIBLE_DEVICES") << "HIP ignores an empty list";
  for (const char* const hip : {"1,0", "0", "1", "2,3", "-1", "GPU-1,GPU-2"}) EXPECT_EQ(kind_below(hip, "2,3"), "none");
  EXPECT_EQ(kind_below("1,0", "0,1", "CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES");
}

TEST(GpuList, UuidsAreKept) {
  const auto gpus = list_of("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a");
  EXPECT_TRUE(gpus->has_uuids && !gpus->has_mig);
  EXPECT_EQ(gpus->text(), "GPU-b,GPU-a");
  const auto mig = list_of("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-GPU-5c89852c/7/0");
  EXPECT_TRUE(mig->has_uuids && mig->has_mig);
}

TEST(GpuList, OtherTextIsLeftAlone) {
  for (const auto* text : {"NoDevFiles", "0,,1", "0,0", "-1", "0;1", "all", "none", "0 1", "99999", "GPU-\n"}) {
    EXPECT_FALSE(list_of("CUDA_VISIBLE_DEVICES", text)) << text;
  }
  EXPECT_FALSE(read_gpu_list(environment_of({{"CUDA_VISIBLE_DEVICES", "0,1"}})));  // no variable of Slurm
  EXPECT_FALSE(read_gpu_list(environment_of({{"SLURM_STEP_GPUS", "0,1"}})));
  std::string long_list = "0";
  for (int i = 1; i <= 256; ++i) long_list += "," + std::to_string(i);
  EXPECT_FALSE(list_of("CUDA_VISIBLE_DEVICES", long_list));
}

TEST(GpuList, IdsThatDoNotFitAreNotKnown) {
  EXPECT_TRUE(list_of("CUDA_VISIBLE_DEVICES", "4,5", "0,1")->ids.empty());
  EXPECT_TRUE(list_of("CUDA_VISIBLE_DEVICES", "0,1", "x")->ids.empty());
  EXPECT_TRUE(list_of("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c", "0,1")->ids.empty());
}

// Four GPUs of NVIDIA and one of AMD, in PCI order; the device nodes are numbered otherwise.
std::vector<Gpu> gpus_of_node() {
  std::vector<Gpu> gpus;
  for (int i = 0; i < 5; ++i) {
    Gpu gpu;
    gpu.pci = "0000:0" + std::to_string(i) + ":00.0";
    gpu.vendor = i == 1 ? GpuVendor::kAmd : GpuVendor::kNvidia;
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.device = i == 1 ? "/dev/dri/renderD128" : "/dev/nvidia" + std::to_string(4 - i);
    gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<std::string> addresses(const GpuList& list) {
  std::vector<std::string> found;
  for (const auto& gpu : find_gpus(list, gpus_of_node())) found.push_back(gpu.pci.substr(0, 7));
  return found;
}

TEST(FindGpus, CountsGpusOfTheVendorInPciOrder) {
  EXPECT_EQ(addresses(*list_of("CUDA_VISIBLE_DEVICES", "0,1", "1,3")),
            (std::vector<std::string>{"0000:02", "0000:04"}));
  EXPECT_EQ(addresses(*list_of("ROCR_VISIBLE_DEVICES", "0", "0")), (std::vector<std::string>{"0000:01"}));
  EXPECT_EQ(addresses(*list_of("CUDA_VISIBLE_DEVICES", "0,1", "0,9")), (std::vector<std::string>{"0000:00", ""}));
}

TEST(FindGpus, FindsGpusByTheirUuids) {
  EXPECT_EQ(addresses(*list_of("CUDA_VISIBLE_DEVICES", "GPU-4,GPU-2", "0,1")),
            (std::vector<std::string>{"0000:04", "0000:02"}));
  EXPECT_EQ(addresses(*list_of("CUDA_VISIBLE_DEVICES", "MIG-GPU-3/7/0,MIG-9", "0,1")),
            (std::vector<std::string>{"0000:03", ""}));
}

TEST(DeviceOf, IsFromTheDriverOrGuessed) {
  const auto list = *list_of("CUDA_VISIBLE_DEVICES", "0,1", "2,3");
  EXPECT_EQ(device_of(list, find_gpus(list, gpus_of_node())[0], 0), "/dev/nvidia1");
  EXPECT_EQ(device_of(list, Gpu(), 0), "/dev/nvidia2");
  EXPECT_EQ(device_of(*list_of("ROCR_VISIBLE_DEVICES", "0"), Gpu(), 0), "");
  EXPECT_EQ(device_of(*list_of("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2"), gpus_of_node()[0], 0), "");
}

TEST(NormalPci, HasOneForm) {
  EXPECT_EQ(normal_pci("0000:1b:00.0"), "0000:1b:00.0");
  EXPECT_EQ(normal_pci("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(normal_pci("10000:e1:1f.7"), "10000:e1:1f.7");
  for (const auto* const text : {"", "1b:00.0", "0000:1b:00", "0000:1b:20.0", "0000:1b:00.8", "0000:100:00.0", "::.",
                                 "0000:1b:00.0 ", "x:1b:00.0", "0000:1b:00.0:0", "0000:1b:.0"}) {
    EXPECT_EQ(normal_pci(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace bootstrap
