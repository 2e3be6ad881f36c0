// slurm-bootstrap: the command line. What each subcommand does is in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bootstrap/bootstrap.h"
#include "comm/helper_main.h"
#include "core/util/text.h"
#include "tools/cli/commands.h"

namespace bootstrap {

int complain(std::string_view sentence, int status) {
  (void)std::fputs(cat({"slurm-bootstrap: ", sentence, "\n"}).c_str(), stderr);
  return status;
}

int complain_of_rank(const Error& error, std::string_view start) {
  if (error.code != ErrorCode::kMissing) return complain(error.message);
  return complain(cat({error.message, "; start it as the tasks of a step: srun ", start}), 2);
}

namespace {

// What the command line says, and the exit status of the subcommand that ran.
struct CommandLine {
  ExplainOptions explain;
  CheckOptions check;
  BenchOptions bench;
  RunOptions run;
  TopologyOptions topology;
  int status = 0;
};

void add_explain(CLI::App& app, CommandLine& line) {
  auto& options = line.explain;
  auto* const command = app.add_subcommand(
      "explain", "Prints each variable of this task's step, its value for each rank, and where it comes from");
  command->add_flag("--json", options.json, "As JSON");
  command->add_flag("--verbose", options.verbose, "Print internal variables, too, and why a framework gets nothing");
  command
      ->add_option("--env", options.environment, "Explain an environment captured with `env -0`; - is standard input")
      ->type_name("FILE");
  command->add_option("--rank", options.rank, "Print in the task of this rank alone, say nothing in the others")
      ->type_name("RANK");
  command->add_flag(
      "--gpus", options.gpus,
      "Print a table of the node instead: which rank has which GPU, and which it can use; once for each node");
  command->add_option("--topology", options.topology, "Where the GPUs are, written by `slurm-bootstrap topology`")
      ->type_name("FILE");
  command->callback([&line] { line.status = explain_command(line.explain); });
}

void add_timeout(CLI::App& command, std::chrono::seconds& timeout, const char* help) {
  command
      .add_option_function<unsigned>(
          "--timeout", [&timeout](unsigned value) { timeout = std::chrono::seconds(value); }, help)
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 3600U));
}

constexpr const char* kTimeoutOfRanks = "Wait this long for all ranks (10)";

void add_check(CLI::App& app, CommandLine& line) {
  auto& options = line.check;
  auto* const command = app.add_subcommand(
      "check", "Tells in one table what works for all ranks of this step: srun slurm-bootstrap check");
  command->add_flag("--json", options.json, "As JSON");
  add_timeout(*command, options.timeout, kTimeoutOfRanks);
  command->add_flag("--local", options.local, "Look at this machine alone; needs no step");
  command->callback([&line] { line.status = check_command(line.check); });
}

void add_run(CLI::App& app, CommandLine& line) {
  auto& options = line.run;
  auto* const command = app.add_subcommand(
      "run", "Checks the step, then becomes the program: srun slurm-bootstrap run -- PROGRAM ARGUMENTS");
  command->add_flag("--keep-going", options.keep_going, "Start the program also when something failed");
  command->add_flag("--horovod", options.horovod,
                    "Make the ranks one Horovod world over Gloo first; the Python of PROGRAM needs Horovod");
  add_timeout(*command, options.timeout, kTimeoutOfRanks);
  command->add_option("PROGRAM", options.program, "The program and its arguments, after --")->required();
  command->callback([&line] { line.status = run_command(line.run); });
}

void add_bench(CLI::App& app, CommandLine& line) {
  constexpr std::uint32_t kMost = 1000000;
  auto& options = line.bench;
  auto* const command = app.add_subcommand(
      "bench", "Times NCCL's all-reduce between the GPUs of this step: srun --gres gpu:8 slurm-bootstrap bench");
  command
      ->add_option("--min-bytes", options.min_bytes, "Begin with messages of this size (8); K, M, G are 1024^1 to ^3")
      ->type_name("BYTES");
  command->add_option("--max-bytes", options.max_bytes, "End with this size or below it (128M)")->type_name("BYTES");
  command->add_option("--factor", options.factor, "From one size to the next (2)")
      ->type_name("N")
      ->check(CLI::Range(2U, kMost));
  command->add_option("--iterations", options.iterations, "All-reduces of each size that are timed (20)")
      ->type_name("N")
      ->check(CLI::Range(1U, kMost));
  command->add_option("--warmup", options.warmup, "All-reduces of each size before them (5)")
      ->type_name("N")
      ->check(CLI::Range(0U, kMost));
  command
      ->add_option("--communicator", options.communicator, "Of all ranks, of each node, or of each local rank (world)")
      ->type_name("world|node|cross")
      ->check(CLI::IsMember({"world", "node", "cross"}));
  command->add_flag("--in-place", options.in_place, "Time it in one buffer instead of two");
  command->add_flag("--check,!--no-check", options.check, "Verify the sums, in place and out of place (the default)");
  command->add_flag("--json", options.json, "As JSON");
  add_timeout(*command, options.timeout, "End a size, or the wait for all ranks, after this long (60)");
  command->callback([&line] { line.status = bench_command(line.bench); });
}

void add_topology(CLI::App& app, CommandLine& line) {
  auto* const command = app.add_subcommand(
      "topology", "Prints which CPUs each GPU of this machine is near to, for topology= of the plugin");
  command->add_option("--output", line.topology.output, "Write it to this file, in one step")->type_name("FILE");
  command->add_option("--from", line.topology.xml, "Of the machine that `lstopo --of xml` wrote this file about")
      ->type_name("FILE");
  command->callback([&line] { line.status = topology_command(line.topology); });
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** arguments) {
  if (bootstrap::is_helper(count, arguments)) bootstrap::serve_as_helper();
  try {
    CLI::App app("Shows and checks how slurm-bootstrap sets up the tasks of a Slurm step.", "slurm-bootstrap");
    app.set_version_flag("--version", BOOTSTRAP_VERSION_TEXT);
    app.require_subcommand(1);
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
      return std::string("slurm-bootstrap: ") + error.what() + "; --help lists what there is\n";
    });
    bootstrap::CommandLine line;
    bootstrap::add_explain(app, line);
    bootstrap::add_check(app, line);
    bootstrap::add_run(app, line);
    bootstrap::add_bench(app, line);
    bootstrap::add_topology(app, line);
    CLI11_PARSE(app, count, arguments);
    return line.status;
  } catch (const std::exception& exception) {
    return bootstrap::complain(exception.what());
  }
}
