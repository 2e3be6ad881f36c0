// What the preloaded library says to people: whole lines on standard error, without harm to the program around it.
// SPDX-License-Identifier: Apache-2.0
#include "preload/stderr_message.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace bootstrap {
namespace {

// Keeps the SIGPIPE of one write from the program: the signal goes to the thread that writes, is held back here and
// taken out again, unless one was waiting already.
class QuietPipe {
 public:
  QuietPipe() noexcept {
    (void)::sigemptyset(&pipe_);
    (void)::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    (void)::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    is_held_ = ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  QuietPipe(const QuietPipe&) = delete;
  QuietPipe& operator=(const QuietPipe&) = delete;
  ~QuietPipe() {
    const timespec now{};
    if (!was_pending_) {
      while (::sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    }
    if (is_held_) (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
  bool is_held_ = false;
};

}  // namespace

void say(std::string_view line) noexcept {
  const int before = errno;
  {
    const QuietPipe quiet;
    char newline = '\n';
    const iovec parts[] = {{const_cast<char*>(line.data()), line.size()}, {&newline, 1}};
    while (::writev(STDERR_FILENO, parts, 2) == -1 && errno == EINTR) {
    }
  }
  errno = before;
}

}  // namespace bootstrap
