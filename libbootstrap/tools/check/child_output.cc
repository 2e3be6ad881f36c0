// Another program's standard output, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "tools/check/check_socket.h"

namespace bootstrap {
namespace {

std::vector<char*> environment_of_child(const std::vector<std::string>& own) {
  std::vector<char*> entries;
  entries.reserve(own.size() + 1);
  for (const auto& entry : own) entries.push_back(const_cast<char*>(entry.c_str()));
  if (!own.empty()) {
    entries.push_back(nullptr);
    return entries;
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LD_PRELOAD=")) entries.push_back(*entry);
  }
  entries.push_back(nullptr);
  return entries;
}

// Its own process group, so that what it starts ends with it.
pid_t start(const std::vector<std::string>& words, const ChildOptions& options, int output) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto entries = environment_of_child(options.environment);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  (void)::posix_spawn_file_actions_init(&actions);
  (void)::posix_spawnattr_init(&attributes);
  (void)::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  (void)::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (options.joins_errors) {
    (void)::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  } else {
    (void)::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
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

ChildOutput::ChildOutput(const std::vector<std::string>& words, const ChildOptions& options) : most_(options.most) {
  std::array<int, 2> ends{};
  if (words.empty()) return;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  output_ = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  process_ = start(words, options, of_child.get());
}

ChildOutput::~ChildOutput() {
  if (process_ <= 0) return;
  (void)::kill(-process_, SIGKILL);
  // A process that waits for a dead file system does not end, and is left to init.
  (void)::waitpid(process_, nullptr, WNOHANG);
}

std::string ChildOutput::read(Deadline deadline) {
  std::string text;
  while (process_ > 0 && text.size() < most_) {
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

std::optional<int> ChildOutput::wait(Deadline deadline) {
  constexpr int kEndPause = 5;  // milliseconds
  int status = 0;
  while (process_ > 0) {
    const auto ended = ::waitpid(process_, &status, WNOHANG);
    if (ended == process_) {
      process_ = -1;
      return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
    }
    const int left = milliseconds_until(deadline);
    if (ended < 0 || left == 0) break;
    (void)::poll(nullptr, 0, std::min(left, kEndPause));
  }
  return std::nullopt;
}

void ChildOutput::send(int signal_number) const {
  if (process_ > 0) (void)::kill(process_, signal_number);
}

}  // namespace bootstrap
