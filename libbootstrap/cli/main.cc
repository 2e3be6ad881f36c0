// slurm-bootstrap: the command line. What each subcommand does is in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bootstrap/bootstrap.h"
#include "cli/check_command.h"
#include "cli/explain_command.h"
#include "cli/run_command.h"
#include "cli/simulate_command.h"
#include "cli/topology_command.h"

namespace bootstrap {
namespace {

// What the command line says, and the exit status of the subcommand that ran.
struct CommandLine {
  ExplainOptions explain;
  CheckOptions check;
  RunOptions run;
  SimulateOptions simulate;
  std::string topology;
  int status = 0;
};

void add_explain(CLI::App& app, CommandLine& line) {
  auto& options = line.explain;
  auto* const command = app.add_subcommand(
      "explain", "Prints each variable of this task's step, its value for each rank, and where it comes from");
  command->add_flag("--json", options.json, "As JSON");
  command
      ->add_option("--env", options.environment, "Explain an environment captured with `env -0`; - is standard input")
      ->type_name("FILE");
  command->add_option("--rank", options.rank, "Print in the task of this rank alone, say nothing in the others")
      ->type_name("RANK");
  command->add_flag("--gpus", options.gpus,
                    "Draw the node instead: which rank sits where, and which GPUs it can use; once for each node");
  command->add_option("--svg", options.svg, "Write that picture to this file, as SVG; %h is the name of the node")
      ->type_name("FILE");
  command
      ->add_option("--topology", options.topology,
                   "Where the GPUs are, written by `slurm-bootstrap topology` or `lstopo --of xml`")
      ->type_name("FILE");
  command->callback([&line] { line.status = explain_command(line.explain); });
}

void add_timeout(CLI::App& command, std::chrono::seconds& timeout) {
  command
      .add_option_function<unsigned>(
          "--timeout", [&timeout](unsigned value) { timeout = std::chrono::seconds(value); },
          "Wait this long for all ranks (10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 3600U));
}

void add_check(CLI::App& app, CommandLine& line) {
  auto& options = line.check;
  auto* const command = app.add_subcommand(
      "check", "Tells in one table what works for all ranks of this step: srun slurm-bootstrap check");
  command->add_flag("--json", options.json, "As JSON");
  add_timeout(*command, options.timeout);
  command->add_flag("--local", options.local, "Look at this machine alone; needs no step");
  command->callback([&line] { line.status = check_command(line.check); });
}

void add_run(CLI::App& app, CommandLine& line) {
  auto& options = line.run;
  auto* const command = app.add_subcommand(
      "run", "Checks the step, then becomes the program: srun slurm-bootstrap run -- PROGRAM ARGUMENTS");
  command->add_flag("--keep-going", options.keep_going, "Start the program also when something failed");
  add_timeout(*command, options.timeout);
  command->add_option("PROGRAM", options.program, "The program and its arguments, after --")->required();
  command->callback([&line] { line.status = run_command(line.run); });
}

void add_topology(CLI::App& app, CommandLine& line) {
  auto* const command = app.add_subcommand(
      "topology",
      "Prints which CPUs each GPU of this machine is near to, in the XML of hwloc, for topology= of the plugin");
  command->add_option("--output", line.topology, "Write it to this file, in one step")->type_name("FILE");
  command->callback([&line] { line.status = topology_command(line.topology); });
}

void add_simulate(CLI::App& app, CommandLine& line) {
  auto& options = line.simulate;
  auto* const command =
      app.add_subcommand("simulate", "Simulates the start of a step with many ranks; what it prints was not measured");
  command->add_option("--ranks", options.ranks, "Ranks (100000), or a list: 100,1000,10000")
      ->delimiter(',')
      ->type_name("N")
      ->check(CLI::Range(1U, 1'000'000U));
  command->add_option("--ranks-per-node", options.ranks_per_node, "Ranks on a node (8)")
      ->type_name("N")
      ->check(CLI::Range(1U, 4096U));
  command->add_option("--roots", options.roots, "Roots of NCCL: auto (one for 256 ranks at most), or a number")
      ->type_name("N");
  command->add_option("--fence", options.fence, "As SLURM_PMIX_FENCE: mixed, ring or tree")
      ->check(CLI::IsMember({"mixed", "ring", "tree"}));
  command
      ->add_option("--gets", options.gets,
                   "Values that a rank reads: those of the roots, the same once for each node, or those of all ranks")
      ->check(CLI::IsMember({"roots", "node", "all"}));
  command->add_option("--constants", options.constants, "Take constants from this file")->type_name("FILE");
  command->add_flag("--print-constants", options.print_constants, "Print the constants, and how each was found");
  command->add_flag("--sensitivity", options.sensitivity, "Show what half and twice each constant would change");
  command->add_option("--seed", options.seed, "Let work vary, in a way of this number; 0 (the default): not at all")
      ->type_name("N");
  command->add_flag("--json", options.json, "As JSON");
  command->callback([&line] { line.status = simulate_command(line.simulate); });
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** arguments) {
  try {
    CLI::App app("Shows and checks how slurm-bootstrap sets up the tasks of a Slurm step.", "slurm-bootstrap");
    app.set_version_flag("--version", BOOTSTRAP_VERSION_TEXT);
    app.require_subcommand(1);
    bootstrap::CommandLine line;
    bootstrap::add_explain(app, line);
    bootstrap::add_check(app, line);
    bootstrap::add_run(app, line);
    bootstrap::add_topology(app, line);
    bootstrap::add_simulate(app, line);
    CLI11_PARSE(app, count, arguments);
    return line.status;
  } catch (const std::exception& exception) {
    (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", exception.what());
    return 1;
  }
}
