// The GPU of a thread, from the CUDA double: its driver alone, and with a runtime in the process.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/cuda_device.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <string>
#include <thread>
#include <utility>

#include "in_child.h"

namespace bootstrap {
namespace {

constexpr const char* kDriver = DOUBLES_DIR "/cuda/libcuda.so.1";
constexpr const char* kRuntime = DOUBLES_DIR "/cuda/libcudart.so.12";

// The library is found again by its SONAME, whatever its path.
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
    EXPECT_EQ(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr) << "asking loads no library";
    load_driver("4");
    EXPECT_EQ(id_of_current(), "none") << "no choice yet";
    ASSERT_TRUE(use_gpu(2));
    EXPECT_EQ(id_of_current(), "2 0000:3a:00.0");
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(id_of_current(), "0 0000:1a:00.0");
    std::thread([] { EXPECT_EQ(id_of_current(), "none") << "a choice is of one thread"; }).join();
  });
}

TEST(Gpu, IdsAreThoseOfAllProcessesOfTheNode) {
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
      const auto status = use_gpu(2);
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
      EXPECT_EQ(status.error().message, message);
    });
  }
}

TEST(Gpu, AMissingDriverIsReported) {
  in_child([] {
    if (::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "there is a driver";
    EXPECT_FALSE(driver_version());
    const auto status = use_gpu(0);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message,
              "GPU 0 cannot be used: there is no libcuda.so.1; install the driver, or pass it to the container");
  });
  in_child([] {
    ::setenv("CUDA_DOUBLE_VERSION", "12040", 1);
    load_driver("0");
    EXPECT_EQ(driver_version(), 12040) << "control";
  });
}

}  // namespace
}  // namespace bootstrap
