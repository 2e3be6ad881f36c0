// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#include "explain_command.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "core/explain.h"
#include "core/task_plan.h"
#include "core/text.h"
#include "probe/environment.h"

namespace bootstrap {
namespace {

struct Options {
  bool json = false;
  std::string file;
  std::optional<std::uint32_t> rank;
};

int explain(const Options& options) {
  const auto environment =
      options.file.empty() ? Result<Environment>(process_environment()) : captured_environment(options.file);
  const auto task = environment ? make_task_plan(*environment) : Result<TaskPlan>(fail(environment.error()));
  if (!task) {
    (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", task.error().message.c_str());
    return 1;
  }
  if (options.rank && *options.rank != task->facts.local_ranks.front()) return 0;
  const auto text = options.json ? explain_json(task->facts, task->settings, task->scope, task->plan)
                                 : explain_text(task->facts, task->settings, task->scope, task->plan);
  (void)std::fputs(text.c_str(), stdout);
  if (options.json) return 0;
  if (!task->is_set) {
    (void)std::puts("The plugin did not set these in this step; they are what it would have set.");
  }
  for (const auto& difference : task->differences) (void)std::printf("Note: %s.\n", difference.c_str());
  return 0;
}

}  // namespace

void add_explain_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand(
      "explain", "Prints each variable of this task's step, its value for each rank, and where it comes from");
  command->add_flag("--json", options->json, "As JSON");
  command->add_option("--env", options->file, "Explain an environment captured with `env -0`; - is standard input")
      ->type_name("FILE");
  command->add_option("--rank", options->rank, "Print in the task of this rank alone, say nothing in the others")
      ->type_name("RANK");
  command->callback([options, &status] { status = explain(*options); });
}

}  // namespace bootstrap
