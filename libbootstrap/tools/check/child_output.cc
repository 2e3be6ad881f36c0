// The output of another process, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "tools/check/check_socket.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxOutput = 65536;

// In the child.
[[noreturn]] void become_program(const std::vector<std::string>& words, int output) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  (void)::dup2(nothing, STDIN_FILENO);
  (void)::dup2(output, STDOUT_FILENO);
  (void)::dup2(nothing, STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  (void)::unsetenv("LD_PRELOAD");
  (void)::execvp(arguments.front(), arguments.data());
  ::_exit(127);  // as in shells
}

}  // namespace

ChildOutput::ChildOutput(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  output_ = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  process_ = ::fork();
  if (process_ != 0) return;
  (void)::setpgid(0, 0);
  become_program(words, of_child.get());
}

ChildOutput::~ChildOutput() {
  if (process_ <= 0) return;
  (void)::kill(-process_, SIGKILL);
  (void)::kill(process_, SIGKILL);  // it may have no group yet
  // A process that waits for a dead file system does not end, and is left to init.
  (void)::waitpid(process_, nullptr, WNOHANG);
}

// False where there is no more to read.
bool ChildOutput::read_some() {
  std::array<char, 4096> part;
  const auto count = ::read(output_.get(), part.data(), part.size());
  if (count < 0 && errno == EINTR) return true;
  if (count > 0) text_.append(part.data(), static_cast<std::size_t>(count));
  return count > 0 && text_.size() < kMaxOutput;
}

const std::string& ChildOutput::read(Deadline deadline) {
  while (process_ > 0 && output_.is_open()) {
    pollfd wait{.fd = output_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    if (!read_some()) output_.reset();
  }
  return text_;
}

}  // namespace bootstrap
