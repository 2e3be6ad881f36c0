// Finds NCCL in and outside of the process, and the functions of each version.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <array>
#include <set>
#include <string>

#include "in_child.h"
#include "nccl_doubles.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

constexpr std::array<const char*, 4> kVersions = {"2.14.3", "2.18.3", "2.23.4", "2.28.9"};

// The real one of this machine, or "".
std::string real_nccl() {
  for (const char* const path :
       {"libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}) {
    if (void* const library = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL); library != nullptr) return path;
  }
  return "";
}

TEST(Nccl, LoadsTheFileThatIsPreferredUnlessTheProcessHasOne) {
  for (const bool is_loaded : {false, true}) {
    in_child([is_loaded] {
      const auto loaded = nccl_double_path("2.23.4");
      ASSERT_TRUE(!is_loaded || ::dlopen(loaded.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr);
      const auto found = succeeded(nccl::load(nccl_double_path("2.18.3")));
      EXPECT_EQ((*found)->version, is_loaded ? 22304 : 21803);
      EXPECT_EQ((*found)->path, nccl_double_path(is_loaded ? "2.23.4" : "2.18.3"));
      EXPECT_EQ(*succeeded(nccl::load(nccl_double_path("2.28.9"))), *found) << "found once";
    });
  }
}

TEST(Nccl, EachVersionHasItsFunctionsAndItsName) {
  EXPECT_EQ(nccl::version_text(20905), "2.9.5");
  EXPECT_EQ(nccl::version_text(2708), "2.7.8");
  EXPECT_EQ(nccl::version_text(0), "of unknown version");
  for (const std::string version : kVersions) {
    const auto nccl = nccl_double(version);
    EXPECT_EQ(nccl::version_text(nccl.version), version);
    EXPECT_EQ(nccl.path, nccl_double_path(version));
    EXPECT_NE(nccl.get_unique_id, nullptr);
    EXPECT_NE(nccl.init_rank_config, nullptr);
    EXPECT_NE(nccl.get_async_error, nullptr);
    EXPECT_EQ(nccl.init_rank_scalable != nullptr, nccl.version >= 22304) << version;
  }
}

TEST(Nccl, RefusesWithTheFileThatWasTried) {
  in_child([] {
    struct Row {
      const char* file;
      ErrorCode code;
      const char* part;
    };
    for (const auto& row : std::initializer_list<Row>{
             {"/nonexistent/libnccl.so.2", ErrorCode::kUnavailable, "/nonexistent/libnccl.so.2"},
             {"libm.so.6", ErrorCode::kUnavailable,
              "libm.so.6 has no ncclCommInitRank: it is not NCCL; set SLURM_BOOTSTRAP_NCCL to a libnccl.so.2"},
             {DOUBLES_DIR "/nccl_undefined.so", ErrorCode::kUnavailable,
              "undefined symbol: cudaOfTomorrow; this file does not fit the other libraries"}}) {
      const auto error = error_of(nccl::load(row.file));
      EXPECT_EQ(error.code, row.code) << row.file;
      EXPECT_NE(error.message.find(row.part), std::string::npos) << error.message;
    }
    EXPECT_TRUE(nccl::load(nccl_double_path("2.28.9"))) << "a failure is not permanent";
  });
  in_child([] {  // this one stays loaded
    const auto old = error_of(nccl::load(DOUBLES_DIR "/nccl_too_old.so"));
    EXPECT_EQ(old.code, ErrorCode::kUnsupported);
    EXPECT_EQ(old.message, "NCCL in " DOUBLES_DIR
                           "/nccl_too_old.so is 2.10.3; set SLURM_BOOTSTRAP_NCCL to a libnccl.so.2 of NCCL "
                           "2.14 or newer");
  });
}

TEST(Nccl, DescribesAnErrorInNcclsWords) {
  const auto nccl = nccl_double("2.28.9");
  nccl::Comm comm = nullptr;
  const auto code = nccl.init_rank(&comm, 2, {}, 2);
  EXPECT_EQ(code, ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(nccl::describe(nccl, "ncclCommInitRank", code, comm),
            "ncclCommInitRank failed: invalid argument (run with NCCL_DEBUG=WARN for details) (Invalid rank requested "
            ": 2/2)");
  EXPECT_EQ(nccl::describe({}, "ncclCommInitRank", 6, nullptr), "ncclCommInitRank failed: error 6");
}

TEST(Nccl, TheRealOneGivesUniqueIds) {
  in_child([] {
    const auto path = real_nccl();
    if (path.empty()) GTEST_SKIP() << "there is no libnccl.so.2";
    const auto nccl = succeeded(nccl::load(path));
    EXPECT_GE((*nccl)->version, nccl::kOldestVersion);
    EXPECT_NE((*nccl)->init_rank_config, nullptr);
    std::set<std::string> ids;
    for (int i = 0; i < 3; ++i) {
      nccl::UniqueId id{};
      ASSERT_EQ((*nccl)->get_unique_id(&id), nccl::kSuccess) << (*nccl)->get_last_error(nullptr);
      ids.emplace(id.internal.data(), id.internal.size());
    }
    EXPECT_EQ(ids.size(), 3U);
  });
}

}  // namespace
}  // namespace bootstrap
