// slurm-bootstrap: the command line. What each subcommand does is in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>

#include "bootstrap/bootstrap.h"
#include "comm/pmi/pmi1_helper.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/status/node_look.h"

namespace bootstrap {

int complain(std::string_view sentence, int status) {
  (void)std::fputs(cat({"slurm-bootstrap: ", sentence, "\n"}).c_str(), stderr);
  return status;
}

int complain_of_rank(const Error& error, std::string_view start) {
  if (error.code != ErrorCode::kMissing) return complain(error.message);
  const auto* const before =
      error.message.ends_with("with srun") ? ": srun " : "; start it as the tasks of a step: srun ";
  return complain(cat({error.message, before, start}), kUsageError);
}

namespace {

// The options of the command line, and the exit status of the subcommand that ran.
struct CommandLine {
  ExplainOptions explain;
  CheckOptions check;
  BenchOptions bench;
  RunOptions run;
  StatusOptions status_of_step;
  TopologyOptions topology;
  int status = 0;
};

std::string own_version() { return cat({"slurm-bootstrap ", kVersion}); }

CLI::App* add_command(CLI::App& app, const char* name, const char* about, const char* footer) {
  auto* const command = app.add_subcommand(name, about);
  command->set_help_flag("-h,--help", "Print this help and exit");
  command->set_version_flag("--version", own_version(), "Print the version and exit");
  command->footer(footer);
  return command;
}

void add_number(CLI::App& command, const char* name, std::uint32_t& value, std::uint64_t least, std::uint64_t most,
                const char* help) {
  command.add_option(name, value, help)->type_name("N")->check(whole_number(least, most));
}

void add_seconds(CLI::App& command, const char* name, std::chrono::seconds& value, const char* help) {
  const auto set = [&value](unsigned seconds) { value = std::chrono::seconds(seconds); };
  command.add_option_function<unsigned>(name, set, help)->type_name("SECONDS")->check(whole_number(1, 3600));
}

void add_explain(CLI::App& app, CommandLine& line) {
  auto& options = line.explain;
  auto* const command =
      add_command(app, "explain",
                  "Prints each variable of this step, its values, and where they come from. Start it inside a task.",
                  "Examples:\n"
                  "  srun -N2 --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap explain --rank 0\n"
                  "  srun -N2 --ntasks-per-node 4 --gres gpu:4 slurm-bootstrap explain --gpus\n"
                  "\n"
                  "Exit status:\n"
                  "  0  the table is printed\n"
                  "  1  the environment is not that of a task, or a file cannot be read\n"
                  "  2  the command line is wrong\n");
  command->add_flag("--json", options.json, "Print JSON instead of the table");
  command->add_flag("--verbose", options.verbose, "Print internal variables too, and why a framework gets nothing");
  command
      ->add_option("--env", options.environment, "Explain an environment captured with `env -0`; - is standard input")
      ->type_name("FILE");
  command->add_option("--rank", options.rank, "Print in the task of this rank only")
      ->type_name("RANK")
      ->check(whole_number(0, kMaxRanks - 1));
  command->add_flag("--gpus", options.gpus,
                    "Print a table of the node instead: which rank has which GPU, and which it can use");
  command->add_option("--topology", options.topology, "Read the topology from this file of `slurm-bootstrap topology`")
      ->type_name("FILE");
  command->callback([&line] { line.status = explain_command(line.explain); });
}

constexpr const char* kTimeoutOfRanks = "Wait this long for all ranks (default 10)";

void add_check(CLI::App& app, CommandLine& line) {
  auto& options = line.check;
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
  command->add_flag("--json", options.json, "Print JSON instead of the table");
  add_seconds(*command, "--timeout", options.timeout, kTimeoutOfRanks);
  auto* const local = command->add_flag("--local", options.local,
                                        "Check this machine only: plugstack.conf, the plugin, libraries, GPUs, memory");
  command->add_flag("--no-plugin", options.no_plugin, "This machine is not meant to load the plugin")->needs(local);
  command->callback([&line] { line.status = check_command(line.check); });
}

void add_run(CLI::App& app, CommandLine& line) {
  auto& options = line.run;
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
  command->add_flag("--keep-going", options.keep_going, "Start the program even if the check fails");
  command->add_flag("--horovod", options.horovod,
                    "Make the ranks one Horovod world over Gloo first; the Python of PROGRAM needs Horovod");
  add_seconds(*command, "--timeout", options.timeout, kTimeoutOfRanks);
  command->callback([&line, command] {
    line.run.program = command->remaining();
    line.status = run_command(line.run);
  });
}

std::string check_communicator(const std::string& word) {
  if (word == "world" || word == "node" || word == "cross") return "";
  return cat({bootstrap::quoted(word), " is not world, node or cross"});
}

void add_bench(CLI::App& app, CommandLine& line) {
  constexpr std::uint32_t kMost = 1000000;
  auto& options = line.bench;
  auto* const command = add_command(
      app, "bench",
      "Times NCCL's all-reduce between the GPUs of the step, by message size. Start it as the tasks of a step with "
      "GPUs.",
      "BYTES takes K, M and G, which are 1024, 1024^2 and 1024^3.\n"
      "\n"
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 8 --gres gpu:8 slurm-bootstrap bench\n"
      "  srun --ntasks 8 --gres gpu:8 slurm-bootstrap bench --max-bytes 4G --json\n"
      "\n"
      "Exit status (the same on all ranks):\n"
      "  0   all sums are right, or not verified\n"
      "  1   a sum is wrong, or something failed\n"
      "  2   the command line is wrong, or this process is not a task of a step\n"
      "  77  CUDA has no GPU for any rank\n");
  command->add_option("--min-bytes", options.min_bytes, "Smallest message (default 8)")->type_name("BYTES");
  command->add_option("--max-bytes", options.max_bytes, "Largest message (default 128M)")->type_name("BYTES");
  add_number(*command, "--factor", options.factor, 2, kMost, "From one size to the next (default 2)");
  add_number(*command, "--iterations", options.iterations, 1, kMost, "Timed all-reduces of each size (default 20)");
  add_number(*command, "--warmup", options.warmup, 0, kMost, "Untimed all-reduces before them (default 5)");
  command
      ->add_option("--communicator", options.communicator,
                   "Of all ranks (default), of each node, or of each local rank")
      ->type_name("world|node|cross")
      ->check(CLI::Validator(check_communicator, ""));
  command->add_flag("--in-place", options.in_place, "Use one buffer instead of two");
  command->add_flag_callback(
      "--no-check", [&options] { options.check = false; }, "Do not verify the sums");
  command->add_flag("--json", options.json, "Print JSON instead of the table");
  add_seconds(*command, "--timeout", options.timeout,
              "Stop if a size, or the wait for all ranks, takes longer (default 60)");
  command->callback([&line] { line.status = bench_command(line.bench); });
}

void add_status(CLI::App& app, CommandLine& line) {
  auto& options = line.status_of_step;
  auto* const command = add_command(
      app, "status",
      "Looks at a running step from outside and shows which rank is out of step. Start it on any host with srun, as "
      "the "
      "owner of the step; without JOBID it takes your only step of several tasks. It reads /proc on the nodes and "
      "changes nothing.",
      "Examples:\n"
      "  slurm-bootstrap status\n"
      "  slurm-bootstrap status 12.0 --stacks\n"
      "  slurm-bootstrap status 12 --watch 30\n"
      "\n"
      "Exit status:\n"
      "  0  what was seen is printed\n"
      "  1  there is no such step, or it cannot be looked at\n"
      "  2  the command line is wrong\n");
  command->add_option("step", options.step, "")->type_name("JOBID[.STEP]");
  command->add_flag("--json", options.json, "Print JSON instead of the table");
  add_seconds(*command, "--watch", options.watch, "Look again after so many seconds, until the step ends");
  command->add_flag("--stacks", options.stacks,
                    "Print the Python code that each rank is in, with py-spy; it does not stop the program");
  command->add_flag("--nccl", options.nccl,
                    "Ask NCCL's RAS (2.24 and later) once; releases that may end the program when asked are refused");
  command->callback([&line] { line.status = status_command(line.status_of_step); });
}

void add_topology(CLI::App& app, CommandLine& line) {
  auto* const command =
      add_command(app, "topology",
                  "Prints which CPUs are near each GPU of this machine. The plugin reads the file with topology= in "
                  "plugstack.conf.",
                  "Examples:\n"
                  "  slurm-bootstrap topology\n"
                  "  slurm-bootstrap topology --output /etc/slurm/topology.txt\n"
                  "\n"
                  "Exit status:\n"
                  "  0  the topology is printed or written\n"
                  "  1  hwloc failed, or a file cannot be read or written\n"
                  "  2  the command line is wrong\n");
  command->add_option("--output", line.topology.output, "Write to this file; readers see the old or the new one")
      ->type_name("FILE");
  command->add_option("--from", line.topology.xml, "Describe the machine of this file of `lstopo --of xml`")
      ->type_name("FILE");
  command->callback([&line] { line.status = topology_command(line.topology); });
}

void add_commands(CLI::App& app, CommandLine& line) {
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
  add_explain(app, line);
  add_check(app, line);
  add_run(app, line);
  add_bench(app, line);
  add_status(app, line);
  add_topology(app, line);
}

// Without the "--" between the options of `run` and its program, which CLI11 2.1 does not take from a prefix command.
std::vector<std::string> words_without_mark(const CLI::App& app, std::vector<std::string> words) {
  const auto* const command = words.empty() || words.front() != "run" ? nullptr : app.get_subcommand("run");
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
  CLI::App app("Shows, checks and times how the tasks of a Slurm step are set up.", "slurm-bootstrap");
  CommandLine line;
  add_commands(app, line);
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
  if (!app.get_subcommands().empty()) return line.status;
  return complain("name a subcommand: explain, check, run, bench, status or topology; see slurm-bootstrap --help",
                  kUsageError);
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** arguments) {
  if (bootstrap::is_helper(count, arguments)) bootstrap::serve_as_helper();
  if (bootstrap::is_node_look(count, arguments)) bootstrap::serve_as_node_look(count, arguments);
  try {
    return bootstrap::run(count, arguments);
  } catch (const std::exception& exception) {
    return bootstrap::complain(exception.what());
  }
}
