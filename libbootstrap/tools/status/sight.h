// What the looking step sees of one rank and of one node, and the lines of JSON in which it reports that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// One rank. Numbers are uint64_t because JSON knows one kind of number.
struct RankSight {
  std::uint64_t rank = 0;
  std::uint64_t local_rank = 0;
  std::uint64_t task = 0;        // of Slurm; other than the rank for a worker of torchrun
  std::uint64_t world_size = 0;  // that a launcher gave this worker; 0: it is a task of Slurm
  std::string node;
  std::uint64_t pid = 0;     // of the process that does the work
  std::string program;       // its name: "python3"
  std::string chain;         // the processes from the task down to it: "bash, sleep"
  std::string unread;        // why the process cannot be looked at; empty: it was
  bool is_launcher = false;  // the program is a shell or a launcher, and nothing else runs below it

  std::string state;          // of the main thread, as /proc/PID/stat has it; empty: unknown
  bool is_still = false;      // the main thread did not run between two looks, one second apart
  std::string waits;          // what the main thread waits in: "futex", "poll"; empty: it runs, or that is unknown
  std::string wchan;          // the kernel's name for it
  std::string child;          // what is wrong with a process below: "python3 (pid 12) is stopped (SIGSTOP)"
  std::uint64_t cpu = 0;      // percent of one core in that second
  std::uint64_t memory = 0;   // KiB
  std::uint64_t written = 0;  // KiB in that second
  std::string cores;          // that it may run on: "0-3"

  std::string framework;                    // whose library is mapped: "PyTorch"; empty: none
  std::vector<std::string> meetings;        // addresses of the rendezvous in its environment: "MASTER_PORT 29500"
  std::vector<std::uint64_t> listens;       // TCP ports
  std::vector<std::uint64_t> task_listens;  // of the launcher of this worker
  std::vector<std::string> links;           // established connections, own and remote port: "41830:29500"
  std::vector<std::uint64_t> tries;         // remote ports of connections that have no answer yet

  std::string nccl_file;             // device and inode: the same library on one node
  std::string nccl_build;            // build id: the same library on all nodes
  std::string nccl_version;          // where the path or the environment names it
  std::uint64_t ras_port = 0;        // at which NCCL's RAS of this rank listens
  std::string gpus;                  // "1 (87 %)"
  std::vector<std::string> gpu_ids;  // UUIDs of the GPUs that the process uses
  std::vector<std::string> stack;    // of the main thread, innermost first: "all_reduce (train.py:12)"
  std::string stack_trouble;

  bool operator==(const RankSight&) const = default;
};

// One node.
struct NodeSight {
  std::string node;
  std::vector<std::uint64_t> tasks;  // ranks that Slurm started here
  std::string ras;                   // the answer of NCCL's RAS, or why there is none
  std::vector<std::string> gpus;     // "PID INDEX PERCENT UUID", by NVML

  bool operator==(const NodeSight&) const = default;
};

std::string write_sight(const RankSight& sight);
std::string write_sight(const NodeSight& sight);

// Nothing for a line that write_sight() does not write. The line may come from any process of the user.
std::optional<RankSight> read_rank_sight(std::string_view line);
std::optional<NodeSight> read_node_sight(std::string_view line);

// Members of the JSON object, without braces: `--json` adds others.
std::string rank_members(const RankSight& sight);

// srun may mix lines of more than 1,024 bytes (MAX_MSG_LEN in Slurm's sources). So a line travels in pieces, each with
// the node, a number and whether more follow.
std::string frame_line(std::string_view node, std::uint64_t number, std::string_view line);

// Joins the pieces. Keeps at most kMaxOpenLines unfinished lines of at most kMaxJsonLine bytes.
class FrameJoiner {
 public:
  static constexpr std::size_t kMaxOpenLines = 65536;
  // The whole line after its last piece. Nothing for another piece, and for what is no piece.
  std::optional<std::string> add(std::string_view piece);
  static bool is_piece(std::string_view text) { return text.starts_with("status "); }

 private:
  std::map<std::string, std::string, std::less<>> open_;
};

}  // namespace bootstrap
