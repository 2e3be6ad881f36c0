// What each subcommand of slurm-bootstrap takes from its command line; each returns its exit status.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

inline constexpr int kUsageError = 2;

// Prints it on standard error, and returns the status.
int complain(std::string_view sentence, int status = 1);
// The same in a process that is no rank. Outside a step it adds how to `start` the command, and returns kUsageError.
int complain_of_rank(const Error& error, std::string_view start);

// What this task was given and why.
struct ExplainOptions {
  bool json = false;
  bool verbose = false;               // all rows, and why frameworks get nothing
  bool gpus = false;                  // a table of the node's GPUs and ranks
  std::string topology;               // file; empty: as slurmstepd finds it
  std::string environment;            // file with a captured one, - is standard input; empty: this process's
  std::optional<std::uint32_t> rank;  // print in this rank only
};

// 0, or 1 with a sentence on standard error.
int explain_command(const ExplainOptions& options);

// What works in this step, for all its ranks in one table.
struct CheckOptions {
  bool json = false;
  bool local = false;                // this machine alone
  bool no_plugin = false;            // with `local`
  std::chrono::seconds timeout{10};  // for all ranks to come
};

// 0, 1 when something failed, 2 outside a step.
int check_command(const CheckOptions& options);

// A check, a Horovod world where it is asked for, and then the program in place of this process.
struct RunOptions {
  bool keep_going = false;  // start the program also when something failed
  bool horovod = false;     // make the ranks one Horovod world first
  std::chrono::seconds timeout{10};
  std::vector<std::string> program;  // and its arguments
};

// When the program was not started: that of `check`, kUsageError without one, or 126 or 127 as shells have it.
int run_command(const RunOptions& options);

// How fast the ranks of this step add numbers up, by message size.
struct BenchOptions {
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  std::uint32_t factor = 2;
  std::uint32_t iterations = 20;
  std::uint32_t warmup = 5;
  std::string communicator = "world";  // or node, cross
  bool in_place = false;
  bool check = true;
  bool json = false;
  std::chrono::seconds timeout{60};  // of each step: all ranks to come, the communicator, each size
};

// The same on all ranks: 0; 1 when something failed or a sum was wrong; 2 outside a step; kBenchSkipped where CUDA has
// no GPU for any rank.
int bench_command(const BenchOptions& options);

// Which rank of a running step is out of step.
struct StatusOptions {
  std::string step;  // JOBID or JOBID.STEP; empty: the user's only one
  bool json = false;
  bool stacks = false;
  bool nccl = false;
  std::chrono::seconds watch{0};  // look again after so long; 0: look once
};

// 0; 1 with a sentence where the step cannot be looked at; kUsageError.
int status_command(const StatusOptions& options);

// A machine's topology, for a file that slurmstepd reads.
struct TopologyOptions {
  std::string output;  // file; empty: standard output
  std::string xml;     // file of lstopo about another machine; empty: this machine
};

// 0, or 1 with a sentence.
int topology_command(const TopologyOptions& options);

}  // namespace bootstrap
