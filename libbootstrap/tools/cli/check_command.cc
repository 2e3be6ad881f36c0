// slurm-bootstrap check: what works in this step, for all its ranks in one table.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/check_command.h"

#include <cstdio>

#include "probe/read_environment.h"
#include "tools/check/check_session.h"
#include "tools/check/watchdog.h"

namespace bootstrap {
namespace {

constexpr int kFailed = 1;
constexpr int kNoStep = 2;

void print(const CheckTable& table, bool as_json) {
  (void)std::fputs((as_json ? table_json(table) : table_text(table)).c_str(), stdout);
  (void)std::fflush(stdout);
}

}  // namespace

int check_command(const CheckOptions& options) {
  const Watchdog watchdog("the check", longest_check(options.timeout));
  const auto environment = process_environment();
  if (options.local) {
    const auto table = judge_machine(look_at_machine(environment));
    print(table, options.json);
    return table.worst() == CheckResult::kFailed ? kFailed : 0;
  }
  auto self = look_at_self(environment);
  if (!self) {
    const bool is_outside = self.error().code == ErrorCode::kMissing;
    (void)std::fprintf(stderr, "slurm-bootstrap: %s%s\n", self.error().message.c_str(),
                       is_outside ? "; start it as the tasks of a step: srun slurm-bootstrap check; or look at this "
                                    "machine alone: slurm-bootstrap check --local"
                                  : "");
    return is_outside ? kNoStep : kFailed;
  }
  CheckSession session;
  session.timeout = options.timeout;
  session.show = [&](const CheckTable& table) { print(table, options.json); };
  return run_check(std::move(*self), session) ? 0 : kFailed;
}

}  // namespace bootstrap
