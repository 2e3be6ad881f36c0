// The command line of slurm-bootstrap: main(), the text of --help, and what the subcommands have in common. What each
// subcommand does is in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <exception>

#include "comm/helper/helper.h"
#include "core/util/text.h"

namespace bootstrap {

int complain(std::string_view sentence, int status) {
  (void)std::fputs(cat({"slurm-bootstrap: ", sentence, "\n"}).c_str(), stderr);
  return status;
}

std::string own_path() {
  std::array<char, PATH_MAX> target;
  const auto size = ::readlink("/proc/self/exe", target.data(), target.size());
  return std::string(target.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
}

CLI::App* add_command(CLI::App& app, int& status, const char* name, int (*run)(const CLI::App& command),
                      const char* about, const char* footer) {
  auto* const command = app.add_subcommand(name, about);
  command->set_version_flag("--version", cat({"slurm-bootstrap ", kVersion}), "Print the version and exit");
  command->footer(footer);
  command->callback([command, run, &status] { status = run(*command); });
  return command;
}

CLI::Option* add_flag(CLI::App& command, const char* name, const std::string& help) {
  return command.add_flag(name, help)->disable_flag_override();  // "--json=no" is refused
}

void add_number(CLI::App& command, const char* name, const char* type, std::uint64_t least, std::uint64_t most,
                const std::string& help, const char* value) {
  // The message of CLI11's own validator does not help the user.
  const auto check = [least, most](const std::string& text) {
    const auto number = parse_unsigned(text, most);
    if (number && *number >= least) return std::string();
    return cat(
        {bootstrap::quote(text), " is not a whole number from ", std::to_string(least), " to ", std::to_string(most)});
  };
  command.add_option(name, help)->type_name(type)->check(CLI::Validator(check, ""))->default_str(value);
}

std::string value_of(const CLI::App& command, const char* option) { return command[option]->as<std::string>(); }

bool has_flag(const CLI::App& command, const char* flag) { return value_of(command, flag) == "true"; }

namespace {

constexpr std::size_t kTextColumn = 22;
constexpr char kHardBlank = '\x01';  // a blank at which no line is broken

bool is_of_every_command(const CLI::Option& option) {
  return option.check_name("--help") || option.check_name("--version");
}

// "--timeout SECONDS", "-h, --help".
std::string name_of(const CLI::Option& option) {
  std::string text;
  for (const auto& name : option.get_snames()) text += cat({"-", name, ", "});
  text += cat({"--", option.get_lnames().front()});
  return option.get_items_expected_max() == 0 ? text : cat({text, " ", option.get_type_name()});
}

std::string synopsis(const CLI::App& command) {
  if (!command.get_subcommands({}).empty()) return "COMMAND [OPTIONS]";
  std::string text;
  std::string arguments;
  for (const auto* const option : command.get_options()) {
    const auto type = option->get_type_name();
    if (option->get_positional()) arguments = option->get_required() ? type : cat({"[", type, "]"});
    if (option->get_positional() || is_of_every_command(*option)) continue;
    auto name = name_of(*option);
    for (auto& character : name) character = character == ' ' ? kHardBlank : character;
    text += cat({"[", name, "] "});
  }
  return cat({text, command.get_prefix_command() ? "PROGRAM [ARGUMENT...]" : arguments});
}

void append_entry(std::string& out, const std::string& name, const std::string& text) {
  auto line = cat({"  ", name});
  if (line.size() + 2 > kTextColumn) {
    out += cat({line, "\n"});
    line.clear();
  }
  append_wrapped(out, line, kTextColumn, text);
}

// "slurm-bootstrap check"
std::string full_name(const CLI::App& command) {
  const auto* const parent = command.get_parent();
  return parent == nullptr ? command.get_name() : cat({parent->get_name(), " ", command.get_name()});
}

// 80 columns, the same parts for the command and for each subcommand. Options come from the command itself, so that
// none is missing; examples and exit statuses are the footer of the command.
std::string help_text(const CLI::App& command) {
  std::string out;
  auto usage = cat({"Usage: ", full_name(command), " "});
  const auto column = usage.size();
  append_wrapped(out, std::move(usage), column, synopsis(command));
  for (auto& character : out) character = character == kHardBlank ? ' ' : character;
  out += "\n";
  append_wrapped(out, "", 0, command.get_description());
  const auto subcommands = command.get_subcommands({});
  if (!subcommands.empty()) out += "\nCommands:\n";
  for (const auto* const subcommand : subcommands) {
    const auto about = subcommand->get_description();
    append_entry(out, subcommand->get_name(), about.substr(0, about.find('.')));
  }
  out += "\nOptions:\n";
  // The options that every command has are first in CLI11's list, and last here.
  for (const bool is_of_every : {false, true}) {
    for (const auto* const option : command.get_options()) {
      if (option->get_positional() || is_of_every_command(*option) != is_of_every) continue;
      append_entry(out, name_of(*option), option->get_description());
    }
  }
  return cat({out, "\n", command.get_footer()});
}

void add_commands(CLI::App& app, int& status) {
  app.formatter_fn([](auto* command, auto&&...) { return help_text(*command); });
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.require_subcommand(0, 1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", cat({"slurm-bootstrap ", kVersion}), "Print the version and exit");
  app.footer(
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap check\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap run ./train\n"
      "\n"
      "Exit status: 0 for success, 1 for a failure, 2 for a wrong command line.\n"
      "`slurm-bootstrap COMMAND --help` and `man slurm-bootstrap` say more.\n");
  for (auto* const add : {add_explain, add_check, add_run, add_status, add_where, add_supervise, add_near}) {
    add(app, status);
  }
}

// Removes the "--" between the options of a command and the program that it starts: CLI11 2.1 does not accept it from a
// prefix command.
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
    const bool is_node_look = count == 8 && std::string_view(arguments[1]) == "look-at-node";
    if (is_node_look) return bootstrap::become_node_look({arguments + 2, arguments + count});
    return bootstrap::run(count, arguments);
  } catch (const std::exception& exception) {
    return bootstrap::complain(exception.what());
  }
}
