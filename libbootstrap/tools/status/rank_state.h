// What `status` reads about each rank and node of a step, and the lines in which its own step reports that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bootstrap {

enum class Phase : std::uint8_t {
  kEnded,
  kLauncher,     // only a shell or launcher runs
  kNoFramework,  // no framework library is mapped yet
  kBefore,       // before the rendezvous
  kConnected,    // to the rendezvous
  kWorking,      // communicating or computing
  kDiskWait,
  kStopped,
  kZombie,
  kUnknown,  // the process cannot be read, or its node did not answer
};
std::string_view phase_name(Phase phase);  // for --json: "before_rendezvous"
std::string_view phase_text(Phase phase);  // for people: "before rendezvous"

// Numbers are uint64_t, so that one function writes and reads them all.
struct RankState {
  std::uint64_t rank = 0;
  std::uint64_t local_rank = 0;
  std::uint64_t task = 0;        // of Slurm; other than the rank for a worker of torchrun
  std::uint64_t world_size = 0;  // that a launcher gave this worker; 0: it is a task of Slurm
  std::string node;
  std::string node_tasks;    // that Slurm started on this node: "4,5"; empty: unknown
  std::uint64_t pid = 0;     // of the process that does the work; 0: there is none
  std::string program;       // its name: "python3"
  std::string chain;         // the processes from the task down to it: "bash, sleep"
  std::string unread;        // why the process cannot be read; empty: it can
  bool is_launcher = false;  // the program is a shell or a launcher without a program below it

  std::string state;           // of the main thread, as in /proc/PID/stat; empty: unknown
  bool is_still = false;       // the main thread did not run between two looks, one second apart
  std::string waits;           // what the main thread waits in: "futex", "poll"; empty: it runs, or that is unknown
  std::string wchan;           // the kernel's name for it
  std::string child;           // what is wrong with a process below: "python3 (pid 12) is stopped (SIGSTOP)"
  std::uint64_t cpu = 0;       // percent of one core in that second
  std::uint64_t cpu_wait = 0;  // percent of one core for which its threads were ready to run and waited
  std::uint64_t memory = 0;    // KiB
  std::uint64_t written = 0;   // KiB in that second
  std::string cores;           // that it may run on: "0-3"

  std::string framework;                    // whose library is mapped: "PyTorch"; empty: none
  std::vector<std::string> meetings;        // addresses of the rendezvous in its environment: "MASTER_PORT 29500"
  std::vector<std::uint64_t> listens;       // TCP ports
  std::vector<std::uint64_t> task_listens;  // of the launcher of this worker
  std::vector<std::string> links;           // established connections, own and remote port: "41830:29500"
  std::vector<std::uint64_t> tries;         // remote ports of connections that have no answer yet

  std::string nccl_file;             // device and inode: the same library on one node
  std::string nccl_build;            // fingerprint of its first page: the same library on all nodes
  std::string nccl_version;          // that the path or the environment names
  std::uint64_t ras_port = 0;        // at which NCCL's RAS of this rank listens
  std::string gpus;                  // "1 (87 %)"
  std::vector<std::string> gpu_ids;  // UUIDs of the GPUs that the process uses
  std::vector<std::string> stack;    // of the main thread, innermost first: "all_reduce (train.py:12)"
  std::string stack_trouble;

  Phase phase = Phase::kUnknown;  // judge() decides

  bool operator==(const RankState&) const = default;
};

struct NodeState {
  std::string node;
  std::vector<std::string> ras;   // lines of NCCL's RAS, or why there are none
  std::vector<std::string> gpus;  // "PID INDEX PERCENT UUID", by nvidia-smi

  bool operator==(const NodeState&) const = default;
};

// What all nodes answered.
struct StepState {
  std::vector<RankState> ranks;
  std::vector<NodeState> nodes;
  std::vector<std::string> silent_nodes;
  std::string complaint;  // of srun; empty: none
};

// "status rank node001 4711 cpu_percent 97": a line for each member and item, since srun may mix lines of more than
// 1,024 bytes (MAX_MSG_LEN in Slurm's sources). `number` is unique on the node. The last line has the item "end".
std::string rank_lines(const RankState& rank);
std::string node_lines(const NodeState& node, std::uint64_t number);

// Reads such lines, in any order of ranks. Any process of the user may write them: texts become printable, and memory
// is bounded by what is read.
class StateReader {
 public:
  // False for a line that is none of these.
  bool add(std::string_view line, StepState& step);

 private:
  std::map<std::string, RankState, std::less<>> ranks_;  // without their end, by node and number
  std::map<std::string, NodeState, std::less<>> nodes_;
};

std::string rank_json(const RankState& rank);

}  // namespace bootstrap
