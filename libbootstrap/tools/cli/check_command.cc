// slurm-bootstrap check: what works in this step, for all its ranks in one table; and run, which does it first.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/read_environment.h"
#include "tools/check/check_session.h"
#include "tools/check/command_time_limit.h"
#include "tools/cli/command_line.h"
#include "tools/horovod_script.h"

namespace bootstrap {
namespace {

constexpr const char* kTimeoutOfRanks = "Wait this long for all ranks (default 10)";
constexpr int kFailed = 1;
constexpr int kCannotRun = 126;  // as in shells
constexpr int kNotFound = 127;

// Of both commands.
struct CheckOptions {
  bool json = false;
  bool local = false;
  bool no_plugin = false;
  bool keep_going = false;
  bool horovod = false;
  std::chrono::seconds timeout{10};
  std::vector<std::string> program;  // and its arguments
};

// On a terminal, unless NO_COLOR is set (no-color.org) or the terminal has no colours.
bool has_colours(std::FILE* file) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(::fileno(file)) == 1 && (refused == nullptr || *refused == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

void print(const CheckTable& table, bool as_json) {
  (void)std::fputs((as_json ? table_json(table) : table_text(table, has_colours(stdout))).c_str(), stdout);
  (void)std::fflush(stdout);
}

// Standard output is the program's.
void print_trouble(const CheckTable& table) {
  if (table.worst() == CheckResult::kFailed) (void)std::fputs(table_text(table, has_colours(stderr)).c_str(), stderr);
}

int check_step(const CheckSession& session, const char* start, bool keep_going = false) {
  // The program that follows does not wait for another Python.
  auto self = look_at_self(process_environment(), !session.leaves_exchange);
  if (!self) return complain_of_rank(self.error(), start);
  return run_check(std::move(*self), session) || keep_going ? 0 : kFailed;
}

// In pip's wheel the library is beside this program, and `run` preloads it in place of the plugin.
void preload_library_beside_us() {
  const auto environment = process_environment();
  const auto id = read_step_id(environment);
  const bool is_set_up = id && environment.get(kStepTagVariable) == step_tag(*id);
  const auto path = own_path();
  const auto library = cat({path.substr(0, path.rfind('/') + 1), "libbootstrap.so.0"});
  if (is_set_up || ::access(library.c_str(), R_OK) != 0) return;
  if (library.find_first_of(" :") != std::string::npos) {
    (void)complain(cat({"cannot preload ", library,
                        ": LD_PRELOAD does not accept a path with a space or a colon; install the package in another "
                        "folder; the program starts without the variables of its rank"}));
    return;
  }
  const auto list = append_preload(environment.get("LD_PRELOAD").value_or(""), library);
  (void)::setenv("LD_PRELOAD", list.c_str(), 1);
}

int become(std::vector<std::string> words) {
  preload_library_beside_us();
  const auto arguments = pointers_to(words);
  (void)execvp(arguments.front(), arguments.data());
  const int status = errno == ENOENT ? kNotFound : kCannotRun;
  return complain(cat({"cannot run ", arguments.front(), ": ", std::strerror(errno)}), status);
}

// The Python that has the program's Horovod: "python3.11", "/opt/venv/bin/python", else that of PATH.
std::string python_of_program(const std::string& program) {
  const auto name = std::string_view(program).substr(program.rfind('/') + 1);
  return name.starts_with("python") ? program : "python3";
}

// Python joins the world, as slurm_bootstrap.horovod() does, and prints the variables. The library comes with this
// command, or is installed.
int join_horovod(const CheckOptions& options) {
  // Python and Horovod are loaded first.
  const auto timeout = std::max(options.timeout, std::chrono::seconds(60));
  const auto path = own_path();
  auto library = cat({path.substr(0, path.rfind('/') + 1), "libbootstrap.so.0"});
  if (::access(library.c_str(), R_OK) != 0) library = "libbootstrap.so.0";
  const auto python = python_of_program(options.program.front());
  const auto joining = start_program(
      {python, "-c", kHorovodScript, library, std::to_string(::getpid()), std::to_string(timeout.count())});
  const auto answer = answer_of(joining, Deadline::clock::now() + timeout + std::chrono::seconds(5));
  bool is_joined = false;
  for (const auto line : split(answer, '\n')) {
    const auto equals = line.find('=');
    if (line.starts_with("error ")) return line.size() > 6 ? complain(std::string(line.substr(6))) : kFailed;
    if (!line.starts_with("HOROVOD_") || equals == std::string_view::npos) continue;
    (void)::setenv(std::string(line.substr(0, equals)).c_str(), std::string(line.substr(equals + 1)).c_str(), 1);
    is_joined = true;
  }
  return is_joined ? 0
                   : complain(cat({"could not make the Horovod world with ", python,
                                   ": it does not run here, or does not load ", library}));
}

int check_command(const CheckOptions& options) {
  const CommandTimeLimit time_limit("the check", longest_check(options.timeout));
  const auto show = [&](const CheckTable& table) { print(table, options.json); };
  if (!options.local) {
    return check_step({.timeout = options.timeout, .show = show},
                      "slurm-bootstrap check; or check this machine only: slurm-bootstrap check --local");
  }
  auto machine = look_at_machine(process_environment());
  machine.plugin.is_expected = !options.no_plugin;
  const auto table = judge_machine(machine);
  show(table);
  return table.worst() == CheckResult::kFailed ? kFailed : 0;
}

int run_command(const CheckOptions& options) {
  // The words behind the options that CLI11 knows.
  if (options.program.empty() || options.program.front().starts_with('-')) {
    const auto what = options.program.empty() ? "run needs a program"
                                              : cat({"run has no option ", bootstrap::quote(options.program.front())});
    return complain(cat({what, ": slurm-bootstrap run PROGRAM [ARGUMENT...]; see slurm-bootstrap run --help"}),
                    kUsageError);
  }
  int status = 0;
  {
    const CommandTimeLimit time_limit("the check", longest_check(options.timeout));
    status = check_step({.timeout = options.timeout, .leaves_exchange = true, .show = print_trouble},
                        "slurm-bootstrap run PROGRAM", options.keep_going);
  }
  if (status == 0 && options.horovod) status = join_horovod(options);
  return status == 0 ? become(options.program) : status;
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  const auto options = std::make_shared<CheckOptions>();
  auto* const command = add_command(
      app, "check",
      "Checks the step and prints one table: what works for all ranks, what does not, and what to do. Start it as the "
      "tasks of a step; --local needs no step.",
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap check\n"
      "  slurm-bootstrap check --local\n"
      "\n"
      "Exit status (the same on all ranks):\n"
      "  0  nothing failed; there may be warnings\n"
      "  1  something failed\n"
      "  2  the command line is wrong, or this process is not a task of a step\n");
  command->add_flag("--json", options->json, "Print JSON instead of the table");
  add_seconds(*command, "--timeout", options->timeout, kTimeoutOfRanks);
  auto* const local = command->add_flag("--local", options->local,
                                        "Check this machine only: plugstack.conf, the plugin, libraries, GPUs, memory");
  command->add_flag("--no-plugin", options->no_plugin, "This machine is not meant to load the plugin")->needs(local);
  command->callback([options, &status] { status = check_command(*options); });
}

void add_run(CLI::App& app, int& status) {
  const auto options = std::make_shared<CheckOptions>();
  auto* const command = add_command(
      app, "run",
      "Checks the step, then starts the program in place of this process. If the check fails, it prints the table and "
      "does not start the program. Options after PROGRAM belong to PROGRAM.",
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 \\\n"
      "      slurm-bootstrap run python3 train.py --epochs 3\n"
      "  srun -N2 --ntasks-per-node 2 --gres gpu:2 \\\n"
      "      slurm-bootstrap run --horovod python3 train_horovod.py\n"
      "\n"
      "Exit status: that of PROGRAM; if it is not started:\n"
      "  1    the check failed\n"
      "  2    the command line is wrong, or this process is not a task of a step\n"
      "  126  PROGRAM cannot be started\n"
      "  127  PROGRAM does not exist\n");
  command->prefix_command();
  command->add_flag("--keep-going", options->keep_going, "Start the program even if the check fails");
  command->add_flag("--horovod", options->horovod,
                    "Make the ranks one Horovod world over Gloo first; the Python of PROGRAM needs Horovod");
  add_seconds(*command, "--timeout", options->timeout, kTimeoutOfRanks);
  command->callback([options, command, &status] {
    options->program = command->remaining();
    status = run_command(*options);
  });
}

}  // namespace bootstrap
