// slurm-bootstrap run: a check, and then the program in place of this process.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cli/check_session.h"
#include "probe/environment.h"

namespace bootstrap {
namespace {

constexpr int kFailed = 1;
constexpr int kNoStep = 2;
constexpr int kCannotRun = 126;  // as shells say it
constexpr int kNotFound = 127;

struct Options {
  bool keep_going = false;
  unsigned timeout = 10;
  std::vector<std::string> program;  // and its arguments
};

// Standard output is the program's.
void print_trouble(const CheckTable& table) {
  if (table.worst() == CheckResult::kFailed) (void)std::fputs(table_text(table).c_str(), stderr);
}

// 0 when the program may start.
int check_first(const Options& options) {
  const std::chrono::seconds timeout(options.timeout);
  const Watchdog watchdog(longest_check(timeout));
  auto self = look_at_self(process_environment());
  if (!self) {
    const bool is_outside = self.error().code == ErrorCode::kMissing;
    (void)std::fprintf(stderr, "slurm-bootstrap: %s%s\n", self.error().message.c_str(),
                       is_outside ? "; start it as the tasks of a step: srun slurm-bootstrap run -- PROGRAM" : "");
    return is_outside ? kNoStep : kFailed;
  }
  CheckSession session;
  session.timeout = timeout;
  session.leaves_pmix_alone = true;
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

int run(const Options& options) {
  const int status = check_first(options);
  return status == 0 ? become(options.program) : status;
}

}  // namespace

void add_run_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand(
      "run", "Checks the step, then becomes the program: srun slurm-bootstrap run -- PROGRAM ARGUMENTS");
  command->add_flag("--keep-going", options->keep_going, "Start the program also when something failed");
  command->add_option("--timeout", options->timeout, "Wait this long for all ranks (10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 3600U));
  command->add_option("PROGRAM", options->program, "The program and its arguments, after --")->required();
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace bootstrap
