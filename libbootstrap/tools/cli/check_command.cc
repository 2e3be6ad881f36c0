// slurm-bootstrap check, which shows in one table what works for all ranks of the step; run, which checks before it
// starts a program; and near, whose ranks meet in the same way.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/read_environment.h"
#include "tools/check/check_session.h"
#include "tools/cli/command_line.h"
#include "tools/horovod_script.h"

namespace bootstrap {
namespace {

constexpr int kFailed = 1;

// On a terminal, unless NO_COLOR is set (no-color.org) or the terminal has no colours.
bool has_colours(std::FILE* file) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(::fileno(file)) == 1 && (refused == nullptr || *refused == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

void print(const std::string& text) {
  (void)std::fputs(text.c_str(), stdout);
  (void)std::fflush(stdout);
}

// Returns true if nothing failed.
bool print_table(const CheckTable& table, bool as_json) {
  print(as_json ? table_json(table) : table_text(table, has_colours(stdout)));
  return table.worst() != CheckResult::kFailed;
}

// Prints on standard error, since standard output belongs to the program.
bool print_trouble(const CheckFindings& findings) {
  const auto table = judge_step(findings);
  if (table.worst() != CheckResult::kFailed) return true;
  (void)std::fputs(table_text(table, has_colours(stderr)).c_str(), stderr);
  return false;
}

std::chrono::seconds timeout_of(const CLI::App& command) {
  return std::chrono::seconds(parse_unsigned(value_of(command, "--timeout")).value_or(0));
}

int check_step(const CheckSession& session, const char* start, bool keep_going = false) {
  limit_time("the check", session.timeout);
  // For `run` the check starts no Python: the program must not wait for it.
  auto self = look_at_self(process_environment(), !session.leaves_exchange);
  if (!self && self.error().code != ErrorCode::kMissing) return complain(self.error().message);
  if (!self) {
    const auto& why = self.error().message;
    const bool has_way = why.ends_with("with srun");
    return complain(cat({why, has_way ? ": srun " : "; start it as the tasks of a step: srun ", start}), kUsageError);
  }
  const bool is_well = run_check(std::move(*self), session);
  (void)::alarm(0);  // the program that this process becomes would inherit it
  return is_well || keep_going ? 0 : kFailed;
}

// Where pip's wheel has the library.
std::string library_beside_us() {
  const auto path = own_path();
  return cat({path.substr(0, path.rfind('/') + 1), "libbootstrap.so.0"});
}

// Sets the rank up if the plugin has not.
void preload_library_beside_us() {
  const auto environment = process_environment();
  const auto id = read_step_id(environment);
  const bool is_set_up = id && environment.get(kStepTagVariable) == step_tag(*id);
  const auto library = library_beside_us();
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
  const auto arguments = pointers_to(words);
  (void)execvp(arguments.front(), arguments.data());
  const int status = errno == ENOENT ? 127 : 126;  // as in shells
  return complain(cat({"cannot run ", arguments.front(), ": ", std::strerror(errno)}), status);
}

// Python joins the world, as slurm_bootstrap.horovod() does, and prints the variables. The library comes with this
// command, or is installed.
int join_horovod(const std::string& program, std::chrono::seconds of_ranks) {
  // Includes the time to load Python and Horovod.
  const auto timeout = std::max(of_ranks, std::chrono::seconds(60));
  auto library = library_beside_us();
  if (::access(library.c_str(), R_OK) != 0) library = "libbootstrap.so.0";
  // The Python that has the program's Horovod: "python3.11", "/opt/venv/bin/python", else the one in PATH.
  const bool is_python = program.substr(program.rfind('/') + 1).starts_with("python");
  const auto python = is_python ? program : std::string("python3");
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

int check_command(const CLI::App& command) {
  const auto timeout = timeout_of(command);
  const bool as_json = has_flag(command, "--json");
  if (!has_flag(command, "--local")) {
    const auto show = [=](const CheckFindings& findings) { return print_table(judge_step(findings), as_json); };
    return check_step({.timeout = timeout, .show = show},
                      "slurm-bootstrap check; or check this machine only: slurm-bootstrap check --local");
  }
  limit_time("the check", timeout);
  auto machine = look_at_machine(process_environment());
  machine.plugin.is_expected = !has_flag(command, "--no-plugin");
  return print_table(judge_machine(machine), as_json) ? 0 : kFailed;
}

// Checks that a program follows the options that CLI11 knows.
int check_program(const CLI::App& command) {
  const auto program = command.remaining();
  if (!program.empty() && !program.front().starts_with('-')) return 0;
  const auto& name = command.get_name();
  const auto what = program.empty() ? cat({name, " needs a program"})
                                    : cat({name, " has no option ", bootstrap::quote(program.front())});
  return complain(
      cat({what, ": slurm-bootstrap ", name, " PROGRAM [ARGUMENT...]; see slurm-bootstrap ", name, " --help"}),
      kUsageError);
}

int run_command(const CLI::App& command) {
  const auto timeout = timeout_of(command);
  int status = check_program(command);
  if (status != 0) return status;
  status = check_step({.timeout = timeout, .leaves_exchange = true, .show = print_trouble},
                      "slurm-bootstrap run PROGRAM", has_flag(command, "--keep-going"));
  const auto program = command.remaining();
  if (status == 0 && has_flag(command, "--horovod")) status = join_horovod(program.front(), timeout);
  if (status != 0) return status;
  preload_library_beside_us();
  return become(program);
}

// The command line of slurm-bootstrap-near, which is beside this program.
std::vector<std::string> near_words(const CLI::App& command, const char* mode) {
  const auto letters = cat({"-", has_flag(command, "--exclusive") ? "e" : "", has_flag(command, "--force") ? "f" : "",
                            value_of(command, "--cards")});
  return {cat({own_path(), "-near"}), mode, letters, value_of(command, "--topology"), value_of(command, "--tasks")};
}

bool print_near_of_ranks(const CheckFindings& findings) {
  std::vector<NearRow> rows;
  std::vector<std::string> names;
  for (const auto& report : findings.reports) {
    if (report) rows.push_back(report->near), names.push_back(cat({std::to_string(report->rank), " ", report->host}));
  }
  const auto missing = missing_ranks(findings).size();
  print(cat({near_table(rows, names), missing == 0 ? "" : counted(missing, "rank") + " sent no answer within 10 s\n"}));
  return true;  // the ranks have met
}

// Ranks send their rows in the reports of a check. Another process, such as a worker of torchrun, prints its own row.
int show_near(const CLI::App& command) {
  const auto answer = answer_of(start_program(near_words(command, "row")), Deadline::clock::now() + kTimeOfPrograms);
  const auto row = read_record<NearRow>(split(answer, '\n').front());
  if (!row) return complain("hwloc cannot read this machine");
  const auto environment = process_environment();
  auto self = look_at_self(environment, false);
  if (!self || environment.has("TORCHELASTIC_RUN_ID")) {
    const auto of_mpirun = environment.get("OMPI_COMM_WORLD_RANK").value_or("0");
    print(near_table({*row}, {std::string(environment.get("RANK").value_or(of_mpirun))}));
    return 0;
  }
  self->report.near = *row;
  limit_time("the table", std::chrono::seconds(10));
  return run_check(std::move(*self), {.leaves_exchange = true, .show = print_near_of_ranks}) ? 0 : kFailed;
}

int near_command(const CLI::App& command) {
  const auto program = command.remaining();
  const bool is_file = !value_of(command, "--topology").empty();
  const bool shows = has_flag(command, "--show") || is_file;
  if (shows && !program.empty()) {
    return complain("near --show and --topology print a table and start no program; remove the option or the program",
                    kUsageError);
  }
  const int status = shows ? 0 : check_program(command);
  if (status != 0) return status;
  auto words = near_words(command, is_file ? "table" : "bind");
  if (::access(words.front().c_str(), X_OK) != 0) {
    return complain(cat({"near needs ", words.front(),
                         ", which is not there: install the package "
                         "slurm-bootstrap-near, or build with libhwloc-dev (RPM: hwloc-devel)"}));
  }
  if (shows && !is_file) return show_near(command);
  words.insert(words.end(), program.begin(), program.end());
  return become(std::move(words));
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "check", check_command,
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
  add_flag(*command, "--json", "Print JSON instead of the table");
  add_number(*command, "--timeout", "SECONDS", 1, 3600, "Wait this long for all ranks (default 10)", "10");
  auto* const local =
      add_flag(*command, "--local", "Check this machine only: plugstack.conf, the plugin, libraries, GPUs, memory");
  add_flag(*command, "--no-plugin", "This machine is not meant to load the plugin")->needs(local);
}

void add_run(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "run", run_command,
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
  add_flag(*command, "--keep-going", "Start the program even if the check fails");
  add_flag(*command, "--horovod",
           "Make the ranks one Horovod world over Gloo first; the Python of PROGRAM needs Horovod");
  add_number(*command, "--timeout", "SECONDS", 1, 3600, "Wait this long for all ranks (default 10)", "10");
}

void add_near(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "near", near_command,
      "Binds this process to the cores near its own GPU, within what the step allows, prefers their memory, and starts "
      "the program in its place. Tasks near the same cores share them. It moves no GPU. Options after PROGRAM belong "
      "to PROGRAM.",
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 8 --gres gpu:8 \\\n"
      "      slurm-bootstrap near python3 train.py\n"
      "  srun -N2 --ntasks-per-node 8 --gres gpu:8 slurm-bootstrap near --show\n"
      "  slurm-bootstrap near --topology node.xml --tasks 8\n"
      "\n"
      "Exit status: that of PROGRAM; if it is not started:\n"
      "  0    the table is printed\n"
      "  1    slurm-bootstrap-near is not installed, or a file cannot be read\n"
      "  2    the command line is wrong\n"
      "  126  PROGRAM cannot be started\n"
      "  127  PROGRAM does not exist\n");
  command->prefix_command();
  add_flag(*command, "--exclusive", "Divide the cores: no two tasks share a core");
  add_flag(*command, "--force", "Bind even if you bound the task yourself");
  command->add_option("--cards", "Set UCX_NET_DEVICES to all cards that are near the GPU")
      ->type_name("ucx")
      ->check([](const std::string& text) { return text == "ucx" ? std::string() : "it sets cards for ucx alone"; });
  add_flag(*command, "--show", "Print how near each rank is to its GPU, the far ones first");
  command->add_option("--topology", "Print the table for the machine in this file of lstopo")->type_name("FILE");
  add_number(*command, "--tasks", "N", 1, 4096, "Tasks on that machine (1)", "1");
}

}  // namespace bootstrap
