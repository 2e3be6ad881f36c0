// Runs a part of a test in a new process: no other test sees what it loads or sets, and it begins without such state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace bootstrap {

// gtest prints nothing in such a process; its standard error is shown if it fails.
inline void print_failures() {
  const auto& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const auto& part = result.GetTestPartResult(i);
    if (part.failed()) std::fprintf(stderr, "%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
  }
}

// Runs `test` in a new process of this program: failures are printed there and count here, and so does a skip.
template <class Test>
void in_child(Test test) {
#ifdef UNDER_EMULATOR
  GTEST_SKIP() << "qemu-user does not start programs of another processor";
#endif
  constexpr int kSkipped = 77;
  int outcome = -1;
  const auto is_right = [&outcome](int status) {
    outcome = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome == 0 || outcome == kSkipped;
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // exec, since a fork would keep libraries of other tests
  EXPECT_EXIT(
      {
        test();
        print_failures();
        std::fflush(nullptr);
        ::_exit(testing::Test::HasFailure() ? 1 : testing::Test::IsSkipped() ? kSkipped : 0);
      },
      is_right, "");
  if (outcome == kSkipped) GTEST_SKIP();
}

}  // namespace bootstrap
