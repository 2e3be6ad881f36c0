// slurm-bootstrap run: a check, a Horovod world where it is asked for, and then the program in place of this process.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/run_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "probe/read_environment.h"
#include "tools/check/check_session.h"
#include "tools/check/watchdog.h"
#include "tools/horovod/horovod_world.h"

namespace bootstrap {
namespace {

constexpr int kFailed = 1;
constexpr int kNoStep = 2;
constexpr int kCannotRun = 126;  // as shells say it
constexpr int kNotFound = 127;

// Standard output is the program's.
void print_trouble(const CheckTable& table) {
  if (table.worst() == CheckResult::kFailed) (void)std::fputs(table_text(table).c_str(), stderr);
}

// 0 when the program may start.
int check_first(const RunOptions& options) {
  const Watchdog watchdog("the check", longest_check(options.timeout));
  auto self = look_at_self(process_environment());
  if (!self) {
    const bool is_outside = self.error().code == ErrorCode::kMissing;
    (void)std::fprintf(stderr, "slurm-bootstrap: %s%s\n", self.error().message.c_str(),
                       is_outside ? "; start it as the tasks of a step: srun slurm-bootstrap run -- PROGRAM" : "");
    return is_outside ? kNoStep : kFailed;
  }
  CheckSession session;
  session.timeout = options.timeout;
  session.leaves_exchange = true;
  session.show = print_trouble;
  return run_check(std::move(*self), session) || options.keep_going ? 0 : kFailed;
}

int become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  (void)::execvp(arguments.front(), arguments.data());
  (void)std::fprintf(stderr, "slurm-bootstrap: cannot run %s: %s\n", arguments.front(), std::strerror(errno));
  return errno == ENOENT ? kNotFound : kCannotRun;
}

}  // namespace

int run_command(const RunOptions& options) {
  const int status = check_first(options);
  if (status != 0) return status;
  if (options.horovod) {
    // Python and Horovod are loaded first.
    const auto timeout = std::max(options.timeout, std::chrono::seconds(60));
    const Watchdog watchdog("the start of Horovod", timeout + std::chrono::seconds(5));
    const auto joined = join_horovod_world(process_environment(), options.program, timeout);
    if (!joined) {
      const auto& why = joined.error().message;
      if (!why.empty()) (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", why.c_str());
      return kFailed;
    }
  }
  return become(options.program);
}

}  // namespace bootstrap
