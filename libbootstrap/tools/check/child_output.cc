// Another program's standard output, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "tools/check/check_socket.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMost = 65536;  // bytes

std::vector<char*> environment_of_child() {
  std::vector<char*> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LD_PRELOAD=")) entries.push_back(*entry);
  }
  entries.push_back(nullptr);
  return entries;
}

// Its own process group, so that what it starts ends with it.
pid_t start(const std::vector<std::string>& words, int output) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto entries = environment_of_child();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  (void)::posix_spawn_file_actions_init(&actions);
  (void)::posix_spawnattr_init(&attributes);
  (void)::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  (void)::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  (void)::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  (void)::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = -1;
  if (::posix_spawnp(&process, arguments.front(), &actions, &attributes, arguments.data(), entries.data()) != 0) {
    process = -1;
  }
  (void)::posix_spawn_file_actions_destroy(&actions);
  (void)::posix_spawnattr_destroy(&attributes);
  return process;
}

}  // namespace

ChildOutput::ChildOutput(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (words.empty()) return;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  output_ = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  process_ = start(words, of_child.get());
}

ChildOutput::~ChildOutput() {
  if (process_ <= 0) return;
  (void)::kill(-process_, SIGKILL);
  // A process that waits for a dead file system does not end, and is left to init.
  (void)::waitpid(process_, nullptr, WNOHANG);
}

std::string ChildOutput::read(Deadline deadline) {
  std::string text;
  while (process_ > 0 && text.size() < kMost) {
    pollfd wait{.fd = output_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    std::array<char, 4096> part{};
    const auto count = ::read(output_.get(), part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace bootstrap
