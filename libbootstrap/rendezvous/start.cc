// Starts the server at which Horovod's ranks meet, from the process that is going to be rank 0.
// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/text.h"

namespace bootstrap {
namespace {

constexpr int kListener = 3;  // where the program expects it

// Between fork and exec nothing but system calls: the caller may have threads, and a lock of theirs is never released
// here.
[[noreturn]] void become_server(const ServerStart& start, char* const* arguments, const sigset_t* no_signals) {
  const bool is_there = start.listener == kListener ? ::fcntl(kListener, F_SETFD, 0) == 0
                                                    : ::dup2(start.listener, kListener) == kListener;
  char* const environment[] = {nullptr};
  if (is_there && ::sigprocmask(SIG_SETMASK, no_signals, nullptr) == 0) {
    ::execve(arguments[0], arguments, environment);
  }
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

}  // namespace

Status start_server(const ServerStart& start) {
  const auto cannot = [&](int error) {
    return fail(ErrorCode::kUnavailable, cat({start.program, " cannot be started: ", std::strerror(error)}));
  };
  std::array<std::string, 7> words{start.program,
                                   "--step",
                                   start.step,
                                   "--size",
                                   std::to_string(start.ranks),
                                   "--while-process",
                                   std::to_string(start.while_process)};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  if (::access(start.program.c_str(), X_OK) != 0) return cannot(errno);
  sigset_t no_signals;
  ::sigemptyset(&no_signals);

  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t server = ::fork();
    if (server == 0) become_server(start, arguments.data(), &no_signals);
    ::_exit(server < 0 ? errno : 0);
  }
  const int error = child < 0 ? errno : wait_for(child);
  if (error != 0) return cannot(error);
  return {};
}

}  // namespace bootstrap
