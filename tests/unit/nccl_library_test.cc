// Finding NCCL in and outside of the process, what each version has, and that our own functions are never taken for it.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <array>
#include <set>
#include <string>

#include "in_child.h"
#include "nccl_doubles.h"

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

TEST(Nccl, VersionsAsPeopleWriteThem) {
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(21403), "2.14.3");
  EXPECT_EQ(nccl::version_text(20905), "2.9.5");
  EXPECT_EQ(nccl::version_text(2708), "2.7.8");
  EXPECT_EQ(nccl::version_text(0), "of unknown version");
}

TEST(Nccl, LoadsTheFileThatIsPreferred) {
  in_child([] {
    const auto found = nccl::load(nccl_double_path("2.18.3"));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->version, 21803);
    EXPECT_EQ((*found)->path, nccl_double_path("2.18.3"));
    const auto again = nccl::load(nccl_double_path("2.28.9"));
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, *found) << "found once";
  });
}

TEST(Nccl, TakesTheCopyThatTheProcessHas) {
  in_child([] {
    ASSERT_NE(::dlopen(nccl_double_path("2.23.4").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr);
    const auto found = nccl::load(nccl_double_path("2.28.9"));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->version, 22304);
  });
}

TEST(Nccl, EachVersionHasWhatItHad) {
  for (const std::string version : kVersions) {
    const auto nccl = nccl_double(version);
    EXPECT_EQ(nccl::version_text(nccl.version), version);
    EXPECT_EQ(nccl.path, nccl_double_path(version));
    EXPECT_NE(nccl.get_unique_id, nullptr);
    EXPECT_NE(nccl.init_rank_config, nullptr);
    EXPECT_NE(nccl.get_async_error, nullptr);
    EXPECT_EQ(nccl.split != nullptr, nccl.version >= 21803) << version;
    EXPECT_EQ(nccl.init_rank_scalable != nullptr, nccl.version >= 22304) << version;
  }
}

TEST(Nccl, SaysWhatWasTriedWhenThereIsNone) {
  in_child([] {
    const auto absent = nccl::load("/nonexistent/libnccl.so.2");
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(absent.error().message.find("/nonexistent/libnccl.so.2"), std::string::npos) << absent.error().message;
    const auto other = nccl::load("libm.so.6");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().message,
              "libm.so.6 has no ncclCommInitRank: it is not NCCL; set SLURM_BOOTSTRAP_NCCL to a libnccl.so.2");
    const auto unfit = nccl::load(DOUBLES_DIR "/nccl_undefined.so");
    ASSERT_FALSE(unfit);
    EXPECT_NE(
        unfit.error().message.find("undefined symbol: cudaOfTomorrow; this file does not fit the other libraries"),
        std::string::npos)
        << unfit.error().message;
    EXPECT_TRUE(nccl::load(nccl_double_path("2.28.9"))) << "a failure is not for ever";
  });
}

// A library that has its own NCCL inside, loaded as Python does: its caller gets that one, whichever else is there.
TEST(Nccl, EachCallerGetsItsOwnCopy) {
  in_child([] {
    ASSERT_NE(::dlopen(nccl_double_path("2.28.9").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr);
    EXPECT_EQ(nccl_double("2.14.3").version, 21403);
    EXPECT_EQ(nccl_double("2.28.9").version, 22809);
    // A caller that brings none: the program, and a library that NCCL has nothing to do with.
    EXPECT_EQ(nccl::functions_for(reinterpret_cast<const void*>(&real_nccl)).version, 22809);
    void* const other = ::dlopen("libm.so.6", RTLD_LAZY);
    EXPECT_EQ(nccl::functions_for(::dlsym(other, "cos")).version, 22809);
  });
}

TEST(Nccl, NothingIsFoundForACallerWithoutNccl) {
  in_child([] {
    const auto none = nccl::functions_for(reinterpret_cast<const void*>(&real_nccl));
    EXPECT_EQ(none.init_rank, nullptr);
    EXPECT_EQ(none.get_unique_id, nullptr);
    EXPECT_EQ(none.path, "");
  });
}

// INTERPOSER is a library with libbootstrap's mark that exports ncclX as libbootstrap does, and ends the process when
// they are called.
TEST(Nccl, NeverTakesAnInterposedFunctionForNccl) {
  in_child([] {
    void* const interposer = ::dlopen(INTERPOSER, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(interposer, nullptr) << ::dlerror();
    // Control: a plain lookup finds one of them, libbootstrap's own here, with which this program is linked.
    ASSERT_NE(::dlsym(RTLD_DEFAULT, "ncclCommInitRank"), nullptr);
    ASSERT_NE(::dlsym(interposer, "ncclCommInitRank"), nullptr);
    EXPECT_EQ(nccl::functions_for(::dlsym(interposer, "ncclCommInitRank")).init_rank, nullptr);
    EXPECT_EQ(nccl::functions_for(reinterpret_cast<const void*>(&real_nccl)).init_rank, nullptr);
    const auto found = nccl::load(nccl_double_path("2.28.9"));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->path, nccl_double_path("2.28.9"));
  });
}

// The same library without the mark is NCCL to us, as a vendor's own build under another name would be.
TEST(Nccl, TakesNcclUnderAnotherName) {
  in_child([] {
    void* const unmarked = ::dlopen(UNMARKED_NCCL, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(unmarked, nullptr) << ::dlerror();
    EXPECT_NE(nccl::functions_for(::dlsym(unmarked, "ncclCommInitRank")).init_rank, nullptr);
    const auto found = nccl::load(UNMARKED_NCCL);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::kUnsupported) << "it says that it is 2.10.3";
    EXPECT_EQ(found.error().message,
              "NCCL in " UNMARKED_NCCL " is 2.10.3; set SLURM_BOOTSTRAP_NCCL to a libnccl.so.2 of NCCL 2.14 or newer");
  });
}

TEST(Nccl, DescribesAnErrorInNcclsWords) {
  const auto nccl = nccl_double("2.28.9");
  nccl::Comm comm = nullptr;
  const auto code = nccl.init_rank(&comm, 2, {}, 2);
  EXPECT_EQ(code, nccl::kInvalidArgument);
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
    const auto nccl = nccl::load(path);
    ASSERT_TRUE(nccl) << nccl.error().message;
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
