// The output of another process, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "tools/check/check_socket.h"

namespace bootstrap {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the child.
[[noreturn]] void become_program(const std::vector<std::string>& words, const ChildOptions& options, int output) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  (void)::dup2(nothing, STDIN_FILENO);
  (void)::dup2(output, STDOUT_FILENO);
  (void)::dup2(options.joins_errors ? output : nothing, STDERR_FILENO);
  const auto arguments = pointers_to(words);
  auto entries = pointers_to(options.environment);
  if (!options.environment.empty()) environ = entries.data();
  if (options.environment.empty()) (void)::unsetenv("LD_PRELOAD");
  (void)::execvp(arguments.front(), arguments.data());
  ::_exit(127);  // as in shells
}

}  // namespace

ChildOutput::ChildOutput(const std::vector<std::string>& words, ChildOptions options) : options_(std::move(options)) {
  start([&](int output) { become_program(words, options_, output); });
}

ChildOutput::ChildOutput(const std::function<void(int)>& work, unsigned seconds)
    : options_{.most = std::size_t{1} << 20} {
  start([&](int output) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)::alarm(seconds);
    work(output);
  });
}

void ChildOutput::start(const std::function<void(int)>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  output_ = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  process_ = ::fork();
  if (process_ != 0) return;
  (void)::setpgid(0, 0);
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
