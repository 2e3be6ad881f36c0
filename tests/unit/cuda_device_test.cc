// The GPU of a thread, from the CUDA double: with the driver alone, and with a loaded runtime. AMD's GPUs: RCCL and HIP
// in place of NCCL and CUDA, with their doubles.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/cuda_device.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "communicator_step.h"
#include "in_child.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

constexpr const char* kDriver = DOUBLES_DIR "/cuda/libcuda.so.1";
constexpr const char* kRuntime = DOUBLES_DIR "/cuda/libcudart.so.12";

// A later dlopen finds the library by its SONAME, from any path.
void load(const char* path) { ASSERT_NE(::dlopen(path, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror(); }

void load_driver(const char* gpus, const char* visible = nullptr) {
  ::setenv("CUDA_DOUBLE_DEVICES", gpus, 1);
  visible == nullptr ? ::unsetenv("CUDA_VISIBLE_DEVICES") : ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  load(kDriver);
}

std::string id_of_current() {
  const auto gpu = current_gpu();
  return gpu ? std::to_string(gpu->ordinal) + " " + gpu->id : "none";
}

TEST(Gpu, TheDeviceOfAContextIsCurrent) {
  in_child([] {
    EXPECT_FALSE(current_gpu());
    EXPECT_EQ(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr) << "the query loads no library";
    load_driver("4");
    EXPECT_EQ(id_of_current(), "none") << "no choice yet";
    ASSERT_TRUE(use_gpu(2));
    EXPECT_EQ(id_of_current(), "2 0000:3a:00.0");
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(id_of_current(), "0 0000:1a:00.0");
    std::thread([] { EXPECT_EQ(id_of_current(), "none") << "a choice applies to one thread"; }).join();
  });
}

TEST(Gpu, IdsAreTheSameInAllProcessesOfTheNode) {
  in_child([] {
    load_driver("4", "3,1");
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(id_of_current(), "0 0000:4a:00.0") << "they do not depend on the visible devices";
  });
  in_child([] {
    const std::string uuid = "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
    load_driver("1", uuid.c_str());
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(id_of_current(), "0 " + uuid);
  });
}

TEST(Gpu, ALoadedRuntimeIsAsked) {
  in_child([] {
    load_driver("4");
    load(kRuntime);
    const auto choose = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_DEFAULT, "cudaSetDevice"));
    ASSERT_NE(choose, nullptr);
    EXPECT_EQ(id_of_current(), "0 0000:1a:00.0") << "where its next call would go";
    ASSERT_EQ(choose(3), 0);
    EXPECT_EQ(id_of_current(), "3 0000:4a:00.0") << "no context yet, so the driver alone does not know";
    ASSERT_TRUE(use_gpu(1));
    EXPECT_EQ(id_of_current(), "1 0000:2a:00.0");
  });
}

TEST(Gpu, RefusalsCarryCudasReason) {
  for (const auto& [gpus, message] :
       {std::pair("2", "GPU 2 cannot be used: invalid device ordinal (101)"),
        std::pair("0", "GPU 2 cannot be used: no CUDA-capable device is detected (100)")}) {
    in_child([gpus = gpus, message = message] {
      load_driver(gpus);
      EXPECT_EQ(error_of(use_gpu(2)), (Error{ErrorCode::kUnavailable, message}));
    });
  }
}

TEST(Gpu, AMissingDriverIsReported) {
  in_child([] {
    if (::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "there is a driver";
    EXPECT_FALSE(driver_version());
    EXPECT_EQ(error_of(use_gpu(0)).message,
              "GPU 0 cannot be used: there is no libcuda.so.1; install the driver, or pass it to the container");
  });
  in_child([] {
    ::setenv("CUDA_DOUBLE_VERSION", "12040", 1);
    load_driver("0");
    EXPECT_EQ(driver_version(), 12040) << "control";
  });
}

constexpr const char* kHip = DOUBLES_DIR "/hip/libamdhip64.so.6";

void load_for_us(const std::string& path) {
  ASSERT_NE(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
}

void load_hip(const char* gpus, const char* rocr = nullptr, const char* hip = nullptr) {
  ::setenv("HIP_DOUBLE_DEVICES", gpus, 1);
  for (const char* const name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    ::unsetenv(name);
  }
  if (rocr != nullptr) ::setenv("ROCR_VISIBLE_DEVICES", rocr, 1);
  if (hip != nullptr) ::setenv("HIP_VISIBLE_DEVICES", hip, 1);
  load_for_us(kHip);
}

void set_list(const char* list) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("ROCR_VISIBLE_DEVICES");
  ::setenv(list, "0,1", 1);
}

// The loader reads LD_LIBRARY_PATH only once, so this changes the child that a test starts next.
void let_loader_find(const std::vector<std::string>& folders) {
  std::string path;
  for (const auto& folder : folders) path += (path.empty() ? "" : ":") + std::string(DOUBLES_DIR) + "/" + folder;
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

TEST(AmdGpu, TheLibraryOfTheProcessComesFirstThenThatOfTheStep) {
  struct Row {
    std::vector<std::string> folders;  // that the loader searches
    const char* list;                  // of the step's GPUs
    std::string loaded;                // in the process; empty: none
    int version;
    const char* product;
  };
  const std::vector<std::string> both = {kRccl, "nccl-2.28.9"};
  for (const auto& row : std::initializer_list<Row>{{both, "ROCR_VISIBLE_DEVICES", "", 22707, "RCCL"},
                                                    {both, "CUDA_VISIBLE_DEVICES", "", 22809, "NCCL"},
                                                    {both, "CUDA_VISIBLE_DEVICES", kRccl, 22707, "RCCL"},
                                                    {both, "ROCR_VISIBLE_DEVICES", "2.28.9", 22809, "NCCL"},
                                                    {{"nccl-2.28.9"}, "ROCR_VISIBLE_DEVICES", "", 22809, "NCCL"}}) {
    let_loader_find(row.folders);
    in_child([&row] {
      set_list(row.list);
      if (!row.loaded.empty()) load_for_us(nccl_double_path(row.loaded));
      const auto found = succeeded(nccl::load());
      EXPECT_EQ((*found)->version, row.version) << row.list << row.loaded;
      EXPECT_EQ(nccl::product(), row.product);
    });
  }
}

TEST(AmdGpu, SentencesNameRccl) {
  in_child([] {
    set_list("ROCR_VISIBLE_DEVICES");
    EXPECT_EQ(
        error_of(nccl::load("/nonexistent/librccl.so.1")).message,
        "cannot load RCCL, which the program has not loaded either: /nonexistent/librccl.so.1: cannot open shared "
        "object file: No such file or directory; add its folder to LD_LIBRARY_PATH, or set SLURM_BOOTSTRAP_NCCL "
        "to the file");
    EXPECT_EQ(nccl::load("libm.so.6").error().message,
              "libm.so.6 has no ncclCommInitRank: it is not RCCL; set SLURM_BOOTSTRAP_NCCL to a librccl.so.1");
    auto older = nccl_double(kRccl);
    older.init_rank_scalable = nullptr;
    EXPECT_EQ(error_of(can_init(older, 2)).message,
              "2 roots need ncclCommInitRankScalable of RCCL 2.23 or newer, but this is RCCL 2.27.7 in " +
                  nccl_double_path(kRccl));
  });
}

TEST(AmdGpu, TheDeviceOfHipIsCurrent) {
  in_child([] {
    EXPECT_EQ(id_of_current(), "none") << "no library is loaded";
    load_hip("4");
    EXPECT_EQ(id_of_current(), "0 0000:c1:00.0") << "where its next call would go";
    ASSERT_TRUE(use_gpu(2));
    EXPECT_EQ(id_of_current(), "2 0000:c3:00.0");
    std::thread([] { EXPECT_EQ(id_of_current(), "0 0000:c1:00.0") << "a choice applies to one thread"; }).join();
  });
  in_child([] {
    load_hip("4", "3,1", "1,0");
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(id_of_current(), "0 0000:c2:00.0") << "ids do not depend on the lists";
  });
}

TEST(AmdGpu, RefusalsCarryHipsReason) {
  in_child([] {
    load_hip("2");
    EXPECT_EQ(use_gpu(2).error().message, "GPU 2 cannot be used: hipErrorInvalidDevice (101)");
  });
  in_child([] {
    set_list("ROCR_VISIBLE_DEVICES");
    const auto status = use_gpu(0);
    if (current_gpu() || status) GTEST_SKIP() << "there is a driver";
    EXPECT_EQ(status.error().message,
              "GPU 0 cannot be used: there is no libamdhip64.so; install the driver, or pass it to the container");
  });
}

TEST(AmdGpu, RcclMakesCommunicators) {
  in_child([] {
    load_hip("4", "0,1,2,3");
    Step step({3}, kRccl);
    const auto comms = step.make([](Rank rank, Call& call) { call.options.device = rank == 2 ? 1 : 2; });
    for (const auto& sentence : sentences(comms)) {
      EXPECT_NE(sentence.find("0000:c3:00.0"), std::string::npos) << sentence;
    }
    EXPECT_EQ(sentences(comms).size(), 3U) << "before RCCL is called";
  });
}

}  // namespace
}  // namespace bootstrap
