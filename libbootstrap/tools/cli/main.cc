// slurm-bootstrap: the command line. What each subcommand does is in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>

#include "bootstrap/bootstrap.h"
#include "comm/helper/helper.h"
#include "core/util/text.h"
#include "tools/cli/command_line.h"

namespace bootstrap {
namespace {

void add_commands(CLI::App& app, int& status) {
  app.formatter(std::make_shared<HelpText>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.require_subcommand(0, 1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", own_version(), "Print the version and exit");
  app.footer(
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap check\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap run ./train\n"
      "\n"
      "Exit status: 0 for success, 1 for a failure, 2 for a wrong command line.\n"
      "`slurm-bootstrap COMMAND --help` and `man slurm-bootstrap` say more.\n");
  add_explain(app, status);
  add_check(app, status);
  add_run(app, status);
  add_status(app, status);
  add_where(app, status);
  add_supervise(app, status);
  add_near(app, status);
}

// Without the "--" between the options of a command that starts a program and the program, which CLI11 2.1 does not
// take from a prefix command.
std::vector<std::string> words_without_mark(const CLI::App& app, std::vector<std::string> words) {
  const bool has_program =
      !words.empty() && (words.front() == "run" || words.front() == "supervise" || words.front() == "near");
  const auto* const command = has_program ? app.get_subcommand(words.front()) : nullptr;
  for (std::size_t i = 1; command != nullptr && i < words.size() && words[i].starts_with('-'); ++i) {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    const auto* const option = command->get_option_no_throw(words[i]);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;  // its value
  }
  return words;
}

int run(int count, char** arguments) {
  CLI::App app("Shows and checks how the tasks of a Slurm step are set up.", "slurm-bootstrap");
  int status = 0;
  add_commands(app, status);
  auto words = words_without_mark(app, {arguments + 1, arguments + count});
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // prints the help or the version
  } catch (const CLI::ParseError& error) {
    const auto commands = app.get_subcommands();
    return complain(cat({error.what(), "; see ", full_name(commands.empty() ? app : *commands.front()), " --help"}),
                    kUsageError);
  }
  if (!app.get_subcommands().empty()) return status;
  return complain(
      "name a subcommand: explain, check, run, status, where, supervise or near; see slurm-bootstrap --help",
      kUsageError);
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** arguments) {
  if (bootstrap::is_helper(count, arguments)) bootstrap::serve_as_helper();
  try {
    if (bootstrap::is_node_look(count, arguments)) return bootstrap::become_node_look(count, arguments);
    return bootstrap::run(count, arguments);
  } catch (const std::exception& exception) {
    return bootstrap::complain(exception.what());
  }
}
