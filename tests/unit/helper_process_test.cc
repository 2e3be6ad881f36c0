// The helper process: at the deadline it does not use a descriptor of the program.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper/helper_process.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

#include "in_child.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

// This program as the helper: reads a byte from the descriptor with the number of its socket.
__attribute__((constructor)) void run_as_helper(int count, char** words) {
  if (count != 2 || std::string_view(words[1]) != kHelperArgument) return;
  char byte = 0;
  ::_exit(::read(kHelperSocket, &byte, 1) == 1 ? 0 : 1);
}

// If there is no time to start a helper, none may read the program's own descriptor of that number.
TEST(HelperProcess, DoesNotReadFromTheProgramIfItStartsLate) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer takes a clone(2) with shared memory for a fork, and then ignores synchronisation";
#endif
  in_child([] {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ASSERT_EQ(::dup2(ends[0], kHelperSocket), kHelperSocket);  // without close-on-exec
    constexpr std::string_view kText = "abcdefghijklmnopqrst";
    ASSERT_EQ(::write(ends[1], kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
    for (std::size_t i = 0; i < kText.size(); ++i) {
      EXPECT_EQ(error_of(HelperProcess::start({}, std::chrono::steady_clock::now())).code, ErrorCode::kTimeout);
    }
    char left[kText.size() + 1] = {};
    EXPECT_EQ(::recv(kHelperSocket, left, sizeof left, MSG_DONTWAIT), static_cast<ssize_t>(kText.size())) << left;
  });
}

}  // namespace
}  // namespace bootstrap
