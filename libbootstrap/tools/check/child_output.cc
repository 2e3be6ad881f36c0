// The output of another process, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
  for (char** entry = environ; own.empty() && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LD_PRELOAD=")) entries.push_back(*entry);
  }
  entries.push_back(nullptr);
  return entries;
}

pid_t start_program(const std::vector<std::string>& words, const ChildOptions& options, int output) {
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
  const int error =
      ::posix_spawnp(&process, arguments.front(), &actions, &attributes, arguments.data(), entries.data());
  (void)::posix_spawn_file_actions_destroy(&actions);
  (void)::posix_spawnattr_destroy(&attributes);
  return error == 0 ? process : -1;
}

// The end to read from; `write_end` gets the other one.
Descriptor open_pipe(Descriptor& write_end) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Descriptor();
  write_end = Descriptor(ends[1]);
  return Descriptor(ends[0]);
}

}  // namespace

ChildOutput::ChildOutput(const std::vector<std::string>& words, ChildOptions options) : options_(std::move(options)) {
  Descriptor of_child;
  output_ = open_pipe(of_child);
  if (output_.is_open() && !words.empty()) process_ = start_program(words, options_, of_child.get());
}

ChildOutput::ChildOutput(const std::function<void(int)>& work, unsigned seconds)
    : options_{.most = std::size_t{1} << 20} {
  Descriptor of_child;
  output_ = open_pipe(of_child);
  process_ = output_.is_open() ? ::fork() : -1;
  if (process_ != 0) return;
  (void)::setpgid(0, 0);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)::alarm(seconds);
  work(of_child.get());
  ::_exit(0);
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
  std::array<char, 65536> part;
  const auto count = ::read(output_.get(), part.data(), part.size());
  if (count < 0 && errno == EINTR) return true;
  if (count > 0) text_.append(part.data(), static_cast<std::size_t>(count));
  has_ended_ = count == 0;
  return count > 0 && text_.size() < options_.most;
}

bool read_all(std::span<ChildOutput* const> children, Deadline deadline) {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<ChildOutput*> reading;
    for (auto* const child : children) {
      if (child->process_ <= 0 || !child->output_.is_open()) continue;
      waits.push_back({.fd = child->output_.get(), .events = POLLIN, .revents = 0});
      reading.push_back(child);
    }
    if (waits.empty()) return true;
    const int ready = ::poll(waits.data(), waits.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0 && !reading[i]->read_some()) reading[i]->output_.reset();
    }
  }
}

bool read_all(std::deque<ChildOutput>& children, Deadline deadline) {
  std::vector<ChildOutput*> all;
  all.reserve(children.size());
  for (auto& child : children) all.push_back(&child);
  return read_all(all, deadline);
}

const std::string& ChildOutput::read(Deadline deadline) {
  ChildOutput* const self = this;
  (void)read_all({&self, 1}, deadline);
  return text_;
}

std::optional<int> ChildOutput::wait(Deadline deadline) {
  constexpr std::chrono::milliseconds kLookAgain(5);
  int status = 0;
  while (process_ > 0) {
    const auto ended = ::waitpid(process_, &status, WNOHANG);
    if (ended == process_) {
      process_ = -1;
      return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
    }
    if (ended < 0 || Deadline::clock::now() >= deadline) break;
    sleep_for(kLookAgain);
  }
  return std::nullopt;
}

void ChildOutput::send(int signal_number) const {
  if (process_ > 0) (void)::kill(process_, signal_number);
}

}  // namespace bootstrap
