// Parts of the preloaded library: LD_PRELOAD, and its messages.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/step/planned_variables.h"
#include "preload/rank_setup.h"

namespace bootstrap {
namespace {

TEST(PreloadList, IsAppendedOnceAndLast) {
  constexpr const char* kOurs = "/usr/lib/libbootstrap.so.0";
  EXPECT_EQ(append_preload("", kOurs), kOurs);
  EXPECT_EQ(append_preload("/lib/libasan.so.8", kOurs), "/lib/libasan.so.8:/usr/lib/libbootstrap.so.0");
  EXPECT_EQ(append_preload("a.so b.so", kOurs), "a.so b.so:/usr/lib/libbootstrap.so.0");
  for (const char* const there : {"/usr/lib/libbootstrap.so.0", "/home/me/libbootstrap.so",
                                  "a.so /x/libbootstrap.so.0.1.0", "libbootstrap.so:b.so"}) {
    EXPECT_EQ(append_preload(there, kOurs), there);
  }
  EXPECT_EQ(append_preload("/x/libbootstrapper.so", kOurs), "/x/libbootstrapper.so:/usr/lib/libbootstrap.so.0");
}

// Standard error, replaced for the life of this object.
class StandardError {
 public:
  explicit StandardError(int file) : before_(::dup(STDERR_FILENO)) { ::dup2(file, STDERR_FILENO); }
  ~StandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST(Message, ABrokenPipeIsNoSignalAndErrnoStays) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  errno = 77;
  {
    const StandardError broken(ends[1]);
    errno = 77;
    print_line("nobody reads this");  // the default action of SIGPIPE would end the test
    EXPECT_EQ(errno, 77);
  }
  ::close(ends[1]);
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
}

TEST(Message, IsOneLine) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    const StandardError heard(ends[1]);
    print_line("one");
  }
  char text[16] = "";
  EXPECT_EQ(::read(ends[0], text, sizeof text), 4);
  EXPECT_STREQ(text, "one\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace bootstrap
