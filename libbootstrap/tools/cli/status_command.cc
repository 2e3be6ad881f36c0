// slurm-bootstrap status, where and supervise, which are scripts of tools/status and tools/supervise. The command
// carries them, and a Python of this host runs them.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/program/program_names.h"
#include "core/program/srun_arguments.h"
#include "core/util/text.h"
#include "tools/cli/command_line.h"
#include "tools/status/node_script.h"
#include "tools/status/status_script.h"
#include "tools/status/supervise_script.h"

namespace bootstrap {
namespace {

// Tries the system's own Python first: it is not on a network file system, for which a rank may be waiting, too. Python
// ignores the user's variables and folders (-I) and installed packages (-S).
int become_python(const char* script, const std::vector<std::string>& words) {
  std::vector<std::string> line{"python3", "-I", "-S", "-c", script};
  line.insert(line.end(), words.begin(), words.end());
  (void)::unsetenv("LD_PRELOAD");       // our library would take Python for a rank
  (void)std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, children leave no exit status
  const auto arguments = pointers_to(line);
  int failure = ENOENT;
  for (const auto* const python : {"/usr/bin/python3", "python3", "/usr/libexec/platform-python"}) {
    (void)::execvp(python, arguments.data());
    if (errno != ENOENT && errno != EACCES) failure = errno;
  }
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  if (failure != ENOENT) return complain(cat({"cannot run python3 on ", host.data(), ": ", std::strerror(failure)}));
  return complain(cat({"looked for python3 on ", host.data(), ", which has none; it needs Python 3.6 or newer"}));
}

// The script gets all options as NAME=VALUE, and then `more`.
int run_script(const CLI::App& command, const char* script, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{command.get_name(), own_path()};
  for (const auto* const option : command.get_options()) {
    words.push_back(cat({option->get_single_name(), "=", option->as<std::string>()}));
  }
  words.insert(words.end(), more.begin(), more.end());
  return become_python(script, words);
}

int status_command(const CLI::App& command) { return run_script(command, kStatusScript); }

int supervise_command(const CLI::App& command) {
  const auto line = command.remaining();
  const auto program = line.empty() ? 0 : program_words(std::span(line).subspan(1)).size();
  const char* const preload = std::getenv("LD_PRELOAD");
  std::vector<std::string> words{"--", preload == nullptr ? "" : preload, std::to_string(line.size() - program)};
  words.insert(words.end(), line.begin(), line.end());
  return run_script(command, kSuperviseScript, words);
}

}  // namespace

int become_node_look(const std::vector<std::string>& words) {
  constexpr unsigned kLifetime = 9;  // seconds, also where `status` does not end the step
  (void)::alarm(kLifetime);
  std::vector<std::string> line{names_of_launchers(), names_of_launcher_modules(), names_of_shells()};
  line.insert(line.end(), words.begin(), words.end());
  return become_python(kNodeScript, line);
}

void add_status(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "status", status_command,
      "Looks at a running step from outside and shows which rank is out of step. Start it on any host with srun, as "
      "the owner of the step; without JOBID it takes your only step of several tasks. It reads /proc on the nodes and "
      "changes nothing.",
      "Examples:\n"
      "  slurm-bootstrap status\n"
      "  slurm-bootstrap status 12.0 --stacks\n"
      "  slurm-bootstrap status 12 --watch 30\n"
      "\n"
      "Exit status:\n"
      "  0  the result is printed\n"
      "  1  there is no such step, or it cannot be looked at\n"
      "  2  the command line is wrong\n");
  command->add_option("step", "")->type_name("JOBID[.STEP]");
  add_flag(*command, "--json", "Print JSON instead of the table");
  add_number(*command, "--watch", "SECONDS", 1, 3600, "Look again after so many seconds, until the step ends");
  add_flag(*command, "--stacks",
           "Print the Python code that each rank is in, with py-spy; it does not stop the program");
  add_flag(*command, "--nccl",
           "Ask NCCL's RAS (2.24 and later) once; releases that may end the program when asked are refused");
}

void add_where(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "where", status_command,
      "Prints HOST:PORT of another step of the same job: its MASTER_ADDR and MASTER_PORT, or with --rank and --port a "
      "port of BOOTSTRAP_PORTS. STEP is the name that srun -J gave it, or its number. It reads /proc on the nodes and "
      "changes nothing.",
      "Examples:\n"
      "  srun -J trainer -N2 --gres=gpu:2 --ntasks-per-node=2 python3 train.py &\n"
      "  slurm-bootstrap where trainer --wait 60\n"
      "  slurm-bootstrap where server --rank 1 --port 1\n"
      "\n"
      "Exit status:\n"
      "  0  the place is printed\n"
      "  1  there is no such step, or it has no such place\n"
      "  2  the command line is wrong\n");
  command->add_option("step", "")->type_name("[JOBID.]STEP")->required();
  add_number(*command, "--rank", "RANK", 0, kMaxRanks - 1, "A port of this rank (0)");
  add_number(*command, "--port", "N", 1, 256, "The first, second, ... port of that rank (1)");
  add_number(*command, "--wait", "SECONDS", 1, 3600, "Wait at most so many seconds until the step has it");
  add_flag(*command, "--json", "Print JSON");
}

void add_supervise(CLI::App& app, int& status) {
  auto* const command = add_command(
      app, status, "supervise", supervise_command,
      "Runs srun as it is, and starts the same line again after a failure: without nodes that are lost, on the others "
      "and spare nodes of the job. Programs find the number of the restart in BOOTSTRAP_RESTART_COUNT. Start it in the "
      "script of a job.",
      "Examples:\n"
      "  slurm-bootstrap supervise -- srun -N8 -n64 python3 train.py\n"
      "  slurm-bootstrap supervise --progress=last.pt --max-restarts=20 -- srun ...\n"
      "\n"
      "Exit status: that of srun; where it is not restarted after a failure, that of\n"
      "the task that failed first. 2: the command line is wrong, or cannot be repeated.\n");
  command->prefix_command();
  add_number(*command, "--max-restarts", "N", 1, 10000, "Start srun again so many times (3)", "3");
  add_number(*command, "--grace", "SECONDS", 1, 3600, "End a step so many seconds after its first failure (30)", "30");
  command->add_option("--progress", "A file that changes when the training progresses")->type_name("FILE");
  add_flag(*command, "--requeue", "Requeue the job where it has too few nodes left");
}

}  // namespace bootstrap
