// Option structures from programs that were built with an older or a newer header.
// SPDX-License-Identifier: Apache-2.0
#include "api/options.h"

#include <gtest/gtest.h>

#include <new>

#include "bootstrap/bootstrap.h"

namespace bootstrap::api {
namespace {

const bootstrap_comm_options_t kDefaults = BOOTSTRAP_COMM_OPTIONS_INIT;

Result<bootstrap_comm_options_t> read(const bootstrap_comm_options_t* given) {
  return read_options(given, kDefaults, "bootstrap_comm_options_t");
}

TEST(Options, NoneAreTheDefaults) {
  const auto options = read(nullptr);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->device, -1);
}

TEST(Options, OfAnOlderHeaderKeepTheDefaultsOfWhatItLacks) {
  bootstrap_comm_options_t given{offsetof(bootstrap_comm_options_t, roots), 1234, 77, 88, 99};
  const auto options = read(&given);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->timeout_ms, 1234);
  EXPECT_EQ(options->roots, 0);
  EXPECT_EQ(options->device, -1);
  EXPECT_EQ(options->nonblocking, 0);
}

TEST(Options, OfANewerHeaderMayOnlyUseWhatWeKnow) {
  alignas(bootstrap_comm_options_t) unsigned char memory[sizeof(bootstrap_comm_options_t) + 8] = {};
  auto* given = new (memory) bootstrap_comm_options_t(kDefaults);
  given->struct_size = sizeof memory;
  given->roots = 3;
  ASSERT_TRUE(read(given));
  EXPECT_EQ(read(given)->roots, 3);
  memory[sizeof(bootstrap_comm_options_t)] = 1;
  const auto refused = read(given);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(Options, ThatWereNotInitialisedAreRefused) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 40}) {
    bootstrap_comm_options_t given = kDefaults;
    given.struct_size = size;
    EXPECT_FALSE(read(&given)) << size;
  }
}

}  // namespace
}  // namespace bootstrap::api
