// An end for a command that hangs in something that has no deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace bootstrap {
namespace {

std::atomic<const char*> running = "the command";
std::atomic<const char*> activity = "its start";

extern "C" void end_process(int /*signal*/) {
  for (const char* const part :
       {"bootstrap: ", running.load(), " hangs, beyond all its deadlines, in ", activity.load(), "\n"}) {
    (void)!::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::_exit(1);
}

}  // namespace

Watchdog::Watchdog(const char* command, std::chrono::seconds limit) {
  running = command;
  struct sigaction action {};
  action.sa_handler = end_process;
  (void)::sigaction(SIGALRM, &action, nullptr);
  (void)::alarm(static_cast<unsigned>(limit.count()));
}

// A program that this process becomes would inherit the alarm.
Watchdog::~Watchdog() {
  (void)::alarm(0);
  (void)::signal(SIGALRM, SIG_DFL);
}

void Watchdog::now(const char* what) { activity = what; }

}  // namespace bootstrap
