// The looking step on one node: looks at each task through /proc and with other tools, and prints its ranks.
// Every call may wait in the kernel: make it in a process that its caller can leave behind.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/status/rank_state.h"

namespace bootstrap {

// What the command hands to its looking step as arguments.
struct NodeLook {
  std::string job;  // of the component, in a heterogeneous job
  std::string step;
  std::uint64_t first_rank = 0;  // of the component
  bool asks_ras = false;
  std::string scontrol;  // absolute path
  std::string py_spy;    // likewise; empty: no stacks are wanted
};

std::vector<std::string> node_look_words(const NodeLook& look);

// False for a command line that is no looking step.
bool is_node_look(int count, const char* const* words);
[[noreturn]] void serve_as_node_look(int count, const char* const* words);

// The tasks of this step in what `scontrol listpids` prints: PID JOBID STEPID LOCALID GLOBALID.
std::vector<RankState> parse_task_list(std::string_view text, const NodeLook& look, const std::string& node);

// Of a symbolic link; empty: there is none.
std::string link_target(const std::string& path);

// A task with its rank, local rank, node and pid alone, as Slurm's record has it.
RankState task_at(const std::string& node, std::uint64_t pid, std::uint64_t rank, std::uint64_t local_rank);

// Adds what is known without the memory of the process, which a process that waits for a disk may have locked.
RankState look_at_main_process(RankState task);

// Looks twice, a second apart, at the task's ranks. `add_stack` is called for each whose memory can be read.
std::vector<RankState> look_at_task(const RankState& task, const std::function<void(RankState&)>& add_stack);

// The tasks of a step on this node by their environment, where Slurm has no list.
std::vector<RankState> find_tasks_by_environment(const std::string& job, const std::string& step,
                                                 const std::string& node);

// What other tools report: nvidia-smi, py-spy and NCCL's RAS.

// "PID INDEX PERCENT UUID" for each process on each GPU. `gpus`: lines of UUID, INDEX, PERCENT; `processes`: of PID,
// UUID.
std::vector<std::string> parse_gpu_use(std::string_view gpus, std::string_view processes);

// In front of a frame of the user's own code.
inline constexpr std::string_view kOwnCode = "* ";

// The frames of the main thread in the output of `py-spy dump --full-filenames`, innermost first: "all_reduce
// (torch/x.py:12)", "* main (train.py:12)". Empty where the output has no stack.
std::vector<std::string> parse_stack(std::string_view output);

// Why py-spy shows no stack, in one sentence; how an administrator can allow it, where that is the reason.
std::string explain_stack_failure(std::string_view output, std::string_view node);

// Runs `py-spy dump --nonblocking`, which reads the memory of the process and does not stop it. For processes whose
// program is a Python; within two seconds.
void add_stack(RankState& rank, const std::string& py_spy);

// "all_reduce, called by main (train.py:12)": the innermost function, and the place in the user's own code. `stack` has
// at least one frame.
std::string describe_stack(const std::vector<std::string>& stack);

// Why this release of NCCL is not asked; empty: it is. `version`: "2.24.3"; empty: unknown.
std::string refuse_ras(std::string_view version, std::uint64_t port);

// The lines that the RAS of the first of these ranks that has one answers to "verbose status"; else one sentence. Waits
// for at most four seconds and reads at most 64 KiB.
std::vector<std::string> ask_ras(const std::vector<RankState>& ranks, std::string_view node);

}  // namespace bootstrap
