// Starts the looking step with srun, reads what its processes print, and leaves nothing of it behind.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/step_choice.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "core/step/host_list.h"
#include "core/util/text.h"
#include "tools/check/child_output.h"
#include "tools/status/node_look.h"

namespace bootstrap {
namespace {

constexpr std::chrono::milliseconds kEndOfSrun(700);
constexpr std::chrono::seconds kCancelLimit(1);
constexpr std::size_t kMaxOutput = std::size_t{512} << 20;
constexpr std::size_t kMaxComplaint = 400;

std::vector<std::string> nodes_of(const StepPart& part) {
  return parse_host_list(part.nodes).value_or(std::vector<std::string>());
}

std::vector<std::string> srun_words(const SlurmCommands& slurm, const ChosenStep& step, const StepPart& part,
                                    const LookOptions& options) {
  const auto nodes = std::to_string(nodes_of(part).size());
  std::vector<std::string> words{slurm.srun,
                                 "--quiet",
                                 cat({"--jobid=", step.leader}),
                                 "--overlap",
                                 cat({"--nodes=", nodes}),
                                 cat({"--ntasks=", nodes}),
                                 cat({"--nodelist=", part.nodes}),
                                 "--ntasks-per-node=1",
                                 "--cpus-per-task=1",
                                 "--mem=0",
                                 "--mpi=none",
                                 "--cpu-bind=none",
                                 "--input=none",
                                 "--export=NONE",
                                 "--chdir=/",
                                 "--time=1",
                                 "--kill-on-bad-exit=0",
                                 cat({"--job-name=", kLookName})};
  if (step.is_heterogeneous) words.push_back(cat({"--het-group=", std::to_string(part.component)}));
  // Without it device cgroups hide the GPUs of the job from nvidia-smi.
  if (part.gpus > 0) words.push_back(cat({"--gres=gpu:", std::to_string(part.gpus)}));
  words.push_back(own_path());
  for (auto& word : node_look_words({.job = part.job,
                    .step = step.step,
                    .first_rank = part.first_rank,
                    .asks_ras = options.asks_ras && part.first_rank == 0,
                    .scontrol = slurm.scontrol,
                    .py_spy = options.py_spy})) {
    words.push_back(std::move(word));
  }
  return words;
}

// srun cancels its step when it gets SIGTERM, and then waits for nodes that do not answer. scancel needs no node.
void cancel(const SlurmCommands& slurm, const ChosenStep& step, std::deque<ChildOutput>& sruns) {
  for (const auto& srun : sruns) srun.send(SIGTERM);
  if (read_all(sruns, Deadline::clock::now() + kEndOfSrun)) return;
  std::vector<std::string> jobs;
  for (const auto& part : step.parts) jobs.push_back(part.job);
  const auto text = run_command({slurm.squeue, "-h", "-s", "-j", join(jobs, ","), "-o", kStepFormat}, kCancelLimit);
  for (const auto& line : parse_steps(text ? *text : "")) {
    if (line.name == kLookName) (void)run_command({slurm.scancel, cat({line.job, ".", line.step})}, kCancelLimit);
  }
}

void read_lines(std::string_view text, StepState& state) {
  StateReader reader;
  for (const auto line : split(text, '\n')) {
    if (reader.add(line, state) || line.empty()) continue;
    // "cluster configuration lacks support for cpu binding" is no reason, and comes in spite of --quiet.
    const bool is_reason = state.complaint.empty() || line.find("execve") != std::string_view::npos;
    if (is_reason && line.find("cpu binding") == std::string_view::npos) {
      state.complaint = printable(line.substr(0, kMaxComplaint));
    }
  }
}

// A process of a rank has an id of this node only.
void add_gpus(StepState& state) {
  for (const auto& node : state.nodes) {
    for (const auto& line : node.gpus) {
      const auto words = split(line, ' ');
      if (words.size() != 4) continue;
      for (auto& rank : state.ranks) {
        if (rank.node != node.node || std::to_string(rank.pid) != words[0]) continue;
        rank.gpus += cat({rank.gpus.empty() ? "" : ", ", words[1], " (", words[2], " %)"});
        rank.gpu_ids.emplace_back(words[3]);
      }
    }
  }
}

}  // namespace

StepState look_at_step(const SlurmCommands& slurm, const ChosenStep& step, const LookOptions& options,
                       Deadline deadline) {
  StepState state;
  std::deque<ChildOutput> sruns;
  for (const auto& part : step.parts) {
    sruns.emplace_back(
        srun_words(slurm, step, part, options),
        ChildOptions{.joins_errors = true, .most = kMaxOutput, .environment = environment_for_srun(environ)});
  }
  if (!read_all(sruns, deadline)) cancel(slurm, step, sruns);
  for (auto& srun : sruns) {
    (void)srun.wait(Deadline::clock::now() + kEndOfSrun);
    read_lines(srun.text(), state);
  }
  for (const auto& part : step.parts) {
    for (auto& name : nodes_of(part)) {
      const bool has_answered = std::any_of(state.nodes.begin(), state.nodes.end(),
                                            [&name](const NodeState& node) { return node.node == name; });
      if (!has_answered) state.silent_nodes.push_back(std::move(name));
    }
  }
  add_gpus(state);
  return state;
}

}  // namespace bootstrap
