// slurm-bootstrap check: what works in this step, for all its ranks in one table.
// SPDX-License-Identifier: Apache-2.0
#include "cli/check_command.h"

#include <cstdio>
#include <memory>
#include <string>

#include "cli/check_session.h"
#include "probe/environment.h"

namespace bootstrap {
namespace {

constexpr int kFailed = 1;
constexpr int kNoStep = 2;

struct Options {
  bool json = false;
  bool local = false;
  unsigned timeout = 10;
};

void print(const CheckTable& table, bool as_json) {
  (void)std::fputs((as_json ? table_json(table) : table_text(table)).c_str(), stdout);
  (void)std::fflush(stdout);
}

int check(const Options& options) {
  const std::chrono::seconds timeout(options.timeout);
  const Watchdog watchdog(longest_check(timeout));
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
  session.timeout = timeout;
  session.show = [&](const CheckTable& table) { print(table, options.json); };
  return run_check(std::move(*self), session) ? 0 : kFailed;
}

}  // namespace

void add_check_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand(
      "check", "Tells in one table what works for all ranks of this step: srun slurm-bootstrap check");
  command->add_flag("--json", options->json, "As JSON");
  command->add_option("--timeout", options->timeout, "Wait this long for all ranks (10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 3600U));
  command->add_flag("--local", options->local, "Look at this machine alone; needs no step");
  command->callback([options, &status] { status = check(*options); });
}

}  // namespace bootstrap
