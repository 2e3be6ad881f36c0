// slurm-bootstrap status: which rank of a running step is out of step, looked at from outside.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "core/util/text.h"
#include "tools/cli/command_line.h"
#include "tools/status/judgement.h"
#include "tools/status/step_choice.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kLookLimit(8);

struct StatusOptions {
  std::string step;  // JOBID or JOBID.STEP; empty: the user's only one
  bool json = false;
  bool stacks = false;
  bool nccl = false;
  std::chrono::seconds watch{0};  // 0: look once
};

// Why the look shows nothing; empty: it does.
std::string explain_no_answer(const StepState& state, const ChosenStep& step) {
  if (state.nodes.empty() && state.complaint.find("execve") != std::string::npos) {
    return cat({"started ", own_path(), " with srun on the nodes of step ", step.name(),
                ", which do not have it; install it there, or start one from a folder that all nodes share"});
  }
  if (state.nodes.empty() && !state.complaint.empty()) {
    return cat({"started the looking step with srun, which failed: ", state.complaint});
  }
  if (step.tasks() > 1 || state.ranks.size() > 1) return "";
  std::string who;
  for (const auto& rank : state.ranks) {
    who = cat({" (", rank.program, ", pid ", std::to_string(rank.pid), " on ", rank.node, ")"});
  }
  return cat({"step ", step.name(), " has one task", who, ", so there is no other rank to compare it with"});
}

int status_command(const StatusOptions& options) {
  if (options.nccl && options.watch.count() != 0) {
    return complain("--nccl asks NCCL once, and --watch looks again and again; use one of them", kUsageError);
  }
  auto argument = options.step.empty() ? StepArgument() : parse_step_argument(options.step);
  if (!argument) return complain(argument.error().message, kUsageError);
  const auto slurm = find_slurm_commands();
  if (!slurm) return complain(slurm.error().message);
  const LookOptions look{options.nccl, options.stacks ? find_program("py-spy") : ""};
  if (options.stacks && look.py_spy.empty()) {
    return complain(
        "looked for py-spy in PATH, which has none; install it with: pip install 'slurm-bootstrap[status]'");
  }
  SeenSince since;
  for (bool is_first = true;; is_first = false) {
    const auto step = find_step(*slurm, *argument);
    if (!step) return complain(step.error().message, is_first ? 1 : 0);
    // Later looks are at the same step.
    *argument = {step->leader, step->step};
    const auto state = look_at_step(*slurm, *step, look, Deadline::clock::now() + kLookLimit);
    const auto why = explain_no_answer(state, *step);
    if (!why.empty()) return complain(why);
    auto judgement = judge(state, step->tasks());
    since.note(judgement, Deadline::clock::now());
    const auto text = options.json ? status_json(judgement, step->name())
                                   : cat({is_first ? "" : "\n", status_text(judgement, step->name(), options.stacks)});
    (void)std::fputs(text.c_str(), stdout);
    (void)std::fflush(stdout);
    if (options.watch.count() == 0) return 0;
    sleep_for(options.watch);
  }
}

}  // namespace

void add_status(CLI::App& app, int& status) {
  const auto options = std::make_shared<StatusOptions>();
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
  command->add_option("step", options->step, "")->type_name("JOBID[.STEP]");
  command->add_flag("--json", options->json, "Print JSON instead of the table");
  add_seconds(*command, "--watch", options->watch, "Look again after so many seconds, until the step ends");
  command->add_flag("--stacks", options->stacks,
                    "Print the Python code that each rank is in, with py-spy; it does not stop the program");
  command->add_flag("--nccl", options->nccl,
                    "Ask NCCL's RAS (2.24 and later) once; releases that may end the program when asked are refused");
  command->callback([options, &status] { status = status_command(*options); });
}

}  // namespace bootstrap
