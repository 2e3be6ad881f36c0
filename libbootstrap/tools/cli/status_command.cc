// slurm-bootstrap status: which rank of a running step is out of step, looked at from outside.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/util/text.h"
#include "tools/cli/commands.h"
#include "tools/status/look_step.h"
#include "tools/status/status_text.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kAskLimit(4);
constexpr std::chrono::seconds kLookLimit(8);

// Slurm's answers about the step, which change while it runs.
class StepFinder {
 public:
  explicit StepFinder(const SlurmCommands& slurm) : slurm_(slurm) {}

  Result<ChosenStep> find(StepArgument argument) const {
    auto step_name = argument.step;
    if (argument.job.empty()) {
      const auto mine = steps({"-u", std::to_string(::getuid())});
      if (!mine) return fail(mine.error());
      const auto chosen = choose_step(*mine, argument);
      if (!chosen) return fail(chosen.error());
      argument.job = chosen->job;
      step_name = argument.step = chosen->step;
    }
    const auto jobs = components(argument.job);
    if (!jobs) return fail(jobs.error());
    std::string ids;
    for (const auto& job : *jobs) ids += cat({ids.empty() ? "" : ",", job.id});
    const auto all = steps({"-j", ids});
    if (!all) return fail(all.error());
    if (step_name.empty() || all->empty()) {
      const auto chosen = choose_step(*all, argument);
      if (!chosen) return fail(chosen.error());
      step_name = chosen->step;
    }
    auto step = join_parts(*jobs, *all, step_name);
    if (!step.parts.empty()) return step;
    const auto refused = choose_step(*all, argument);
    return fail(refused ? Error{ErrorCode::kMissing, cat({"step ", step_name, " has ended"})} : refused.error());
  }

 private:
  Result<std::vector<StepLine>> steps(std::vector<std::string> whose) const {
    std::vector<std::string> words{slurm_.squeue, "-h", "-s", "-o", kStepFormat};
    for (auto& word : whose) words.push_back(std::move(word));
    const auto text = run_command(words, kAskLimit);
    if (!text) return fail(text.error());
    return parse_steps(*text);
  }

  // Of a heterogeneous job all, whichever of them was named.
  Result<std::vector<JobLine>> components(const std::string& job) const {
    auto jobs = show_job(job);
    const bool is_part = jobs && !jobs->empty() && !jobs->front().leader.empty();
    if (is_part) jobs = show_job(jobs->front().leader);
    if (!jobs) return fail(jobs.error());
    auto refusal = refuse_job(*jobs, job, ::getuid());
    if (!refusal.empty()) return fail(ErrorCode::kUnavailable, std::move(refusal));
    return jobs;
  }

  Result<std::vector<JobLine>> show_job(const std::string& job) const {
    const auto text = run_command({slurm_.scontrol, "show", "job", "-d", "-o", job}, kAskLimit);
    if (!text && text.error().message.find("nvalid job id") != std::string::npos) return std::vector<JobLine>();
    if (!text) return fail(text.error());
    return parse_jobs(*text);
  }

  const SlurmCommands& slurm_;
};

// srun's own words where no node answered.
std::string explain_no_answer(const StepSight& sight, const ChosenStep& step) {
  if (sight.complaint.find("execve") != std::string::npos) {
    return cat({"started ", own_path(), " with srun on the nodes of step ", step.name(),
                ", which do not have it; install it there, or start one from a folder that all nodes share"});
  }
  if (!sight.complaint.empty()) return cat({"started the looking step with srun, which failed: ", sight.complaint});
  return "";
}

void print_out(const std::string& text) {
  (void)std::fputs(text.c_str(), stdout);
  (void)std::fflush(stdout);
}

class StatusCommand {
 public:
  StatusCommand(const StatusOptions& options, SlurmCommands slurm, StepArgument argument)
      : options_(options), slurm_(std::move(slurm)), argument_(std::move(argument)) {}

  int run() {
    if (options_.stacks) look_.py_spy = find_program("py-spy");
    if (options_.stacks && look_.py_spy.empty()) {
      return complain(
          "looked for py-spy in PATH, which has none; install it with: pip install 'slurm-bootstrap[status]'");
    }
    look_.asks_ras = options_.nccl;
    for (;;) {
      const auto step = StepFinder(slurm_).find(argument_);
      if (!step) return complain(step.error().message, has_shown_ ? 0 : 1);
      // Later looks are at the same step.
      argument_ = {.job = step->leader, .step = step->step};
      if (const int status = look_at(*step); status != 0 || options_.watch.count() == 0) return status;
      (void)::poll(nullptr, 0, static_cast<int>(options_.watch.count()) * 1000);
    }
  }

 private:
  int look_at(const ChosenStep& step) {
    const auto sight = look_at_step(slurm_, step, look_, Deadline::clock::now() + kLookLimit);
    const auto why = sight.nodes.empty() ? explain_no_answer(sight, step) : "";
    if (!why.empty()) return complain(why);
    if (step.tasks() == 1 && sight.ranks.size() < 2) return complain(one_task_sentence(sight, step));
    auto judgement = judge(sight, step.tasks());
    since_.note(judgement, Deadline::clock::now());
    if (has_shown_ && !options_.json) print_out("\n");
    has_shown_ = true;
    print_out(options_.json ? status_json(judgement, step.name())
                            : status_text(judgement, step.name(), options_.stacks));
    return 0;
  }

  static std::string one_task_sentence(const StepSight& sight, const ChosenStep& step) {
    const auto who =
        sight.ranks.empty()
            ? std::string()
            : cat({" (", printable(sight.ranks.front().program), ", pid ", std::to_string(sight.ranks.front().pid),
                   " on ", printable(sight.ranks.front().node), ")"});
    return cat({"step ", step.name(), " has one task", who, ", so there is no other rank to compare it with"});
  }

  const StatusOptions& options_;
  SlurmCommands slurm_;
  StepArgument argument_;
  LookOptions look_;
  SeenSince since_;
  bool has_shown_ = false;
};

}  // namespace

int status_command(const StatusOptions& options) {
  if (options.nccl && options.watch.count() != 0) {
    return complain("--nccl asks NCCL once, and --watch looks again and again; use one of them", kUsageError);
  }
  StepArgument argument;
  if (!options.step.empty()) {
    auto parsed = parse_step_argument(options.step);
    if (!parsed) return complain(parsed.error().message, kUsageError);
    argument = std::move(*parsed);
  }
  auto slurm = find_slurm_commands();
  if (!slurm) return complain(slurm.error().message);
  return StatusCommand(options, std::move(*slurm), std::move(argument)).run();
}

}  // namespace bootstrap
