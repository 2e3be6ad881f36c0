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
// With progress: prints what it waits for after three seconds, if standard error is a terminal.
class CommandTimeLimit {
 public:
  // "the check"; the text is kept, not copied.
  CommandTimeLimit(const char* command, std::chrono::seconds limit, bool has_progress = false) {
    command_ = command;
    rest_ = static_cast<unsigned>(limit.count());
    const bool prints = has_progress && rest_ > kPatience && ::isatty(STDERR_FILENO) == 1;
    (void)::signal(SIGALRM, prints ? show_progress : end_process);
    (void)::alarm(prints ? kPatience : rest_.load());
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
  static constexpr unsigned kPatience = 3;  // seconds

  static void print(std::initializer_list<const char*> parts) {
    for (const char* const part : parts) (void)!::write(STDERR_FILENO, part, std::strlen(part));
  }

  static void show_progress(int /*signal*/) {
    print({"slurm-bootstrap: ", activity_.load(), " takes longer than 3 s\n"});
    (void)::signal(SIGALRM, end_process);
    (void)::alarm(rest_ - kPatience);
  }

  static void end_process(int /*signal*/) {
    print({"bootstrap: ", command_.load(), " did not end within its deadlines; it hangs in ", activity_.load(), "\n"});
    ::_exit(1);
  }

  static inline std::atomic<unsigned> rest_ = 0;
  static inline std::atomic<const char*> command_ = "the command";
  static inline std::atomic<const char*> activity_ = "its start";
};

}  // namespace bootstrap
