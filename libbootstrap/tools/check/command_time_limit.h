// An end for a command that hangs in something that has no deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <initializer_list>

namespace bootstrap {

// Ends the process with one sentence if it lives longer than `limit`, whatever it hangs in. One at a time in a process.
class CommandTimeLimit {
 public:
  // "the check"; the text is kept, not copied.
  CommandTimeLimit(const char* command, std::chrono::seconds limit) {
    command_ = command;
    (void)::signal(SIGALRM, end_process);
    (void)::alarm(static_cast<unsigned>(limit.count()));
  }
  CommandTimeLimit(const CommandTimeLimit&) = delete;
  CommandTimeLimit& operator=(const CommandTimeLimit&) = delete;
  // A program that this process becomes would inherit the alarm.
  ~CommandTimeLimit() {
    (void)::alarm(0);
    (void)::signal(SIGALRM, SIG_DFL);
  }

  static void now(const char* activity) { activity_ = activity; }  // for the sentence: "the exchange over PMIx"; kept

 private:
  static void end_process(int /*signal*/) {
    for (const char* const part :
         {"bootstrap: ", command_.load(), " did not end within its deadlines; it hangs in ", activity_.load(), "\n"}) {
      (void)!::write(STDERR_FILENO, part, std::strlen(part));
    }
    ::_exit(1);
  }

  static inline std::atomic<const char*> command_ = "the command";
  static inline std::atomic<const char*> activity_ = "its start";
};

}  // namespace bootstrap
