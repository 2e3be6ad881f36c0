// What one rank of a check found on its side, and the text in which it tells rank 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/util/result.h"
#include "tools/check/check_frame.h"

namespace bootstrap {

// How the rank got to MASTER_ADDR:MASTER_PORT. Where that failed the report came through another port.
enum class Reach : std::uint8_t {
  kReached,
  kNoName,       // the name means nothing here
  kRefused,      // nobody listens
  kSilent,       // no answer: packets are dropped on the way
  kUnreachable,  // no route, or the interface is down
  kForeign,      // somebody else answers
};

// Who gave the task its variables.
enum class SetBy : std::uint8_t { kNobody, kPlugin, kPreload };

// Texts are printable ASCII of at most kMaxReportText bytes; items of lists hold no blank. Other bytes become '?' on
// the way.
struct CheckReport {
  std::string step_tag;
  Rank rank = 0;
  std::string host;  // as the kernel calls it

  // The plan, as the program sees it.
  std::string address;  // MASTER_ADDR
  std::uint16_t port = 0;
  std::uint32_t size = 0;
  std::uint32_t layout = 0;  // fingerprint of which rank is on which host
  SetBy set_by = SetBy::kNobody;
  bool has_plan = false;
  std::string plan_trouble;  // why there is none, or what became of it

  // The way to rank 0.
  Reach reach = Reach::kReached;
  std::string reach_trouble;         // the system's words where it failed
  std::string target;                // the address that the name stands for: "10.1.0.1"
  std::string interface;             // "eth0"
  std::uint64_t round_trip_us = 0;   // microseconds
  std::int64_t clock_offset_us = 0;  // rank 0's clock minus this one's
  std::uint64_t clock_error_us = 0;  // at most this much wrong

  // Libraries.
  bool has_pmix = false;
  std::string pmix_client;  // "libpmix.so.2 4.2.2"
  std::string pmix_server;  // "4.2.2rc2"; empty: not told
  std::string pmix_trouble;
  std::string nccl_version;  // "2.28.9"; empty: not there
  std::string nccl_path;
  std::string nccl_trouble;    // there is one that cannot be used
  std::string cuda_version;    // of the driver, "13.0"; empty: not there
  std::string cuda_module;     // "580.65.06"
  std::string openmp_threads;  // OMP_NUM_THREADS

  // GPUs.
  bool has_gpus = false;               // Slurm gave GPUs to the step
  bool is_nvidia = false;              // NVIDIA's
  bool may_share_gpus = false;         // sharing them is what was asked for
  bool leaves_gpus = false;            // they are left to the program: --bootstrap-gpu=off
  std::uint32_t gpus_on_node = 0;      // that the step was given here; 0: not told
  std::vector<std::string> gpu_list;   // what the task's list names: device nodes or UUIDs; "?": nothing that is there
  std::string own_gpu;                 // one of them; empty: not known
  std::vector<std::string> open_gpus;  // device nodes that this task can open
  std::vector<std::string> closed_gpus;  // and those that are there but hidden from it
  std::string gpu_cure;                  // the option of srun that ends the hiding

  // The machine.
  std::string cpus;  // that the task may run on, "0-3,8"
  std::uint32_t cpu_count = 0;
  std::uint32_t cpus_on_node = 0;   // that the step was given here; 0: not told
  std::uint64_t shm_free = 0;       // bytes in /dev/shm
  std::uint64_t locked_memory = 0;  // bytes, UINT64_MAX: no limit
  std::uint32_t rdma_devices = 0;
  std::string kernel;  // "Linux 6.1.0-18-amd64"
  std::string libc;    // "glibc 2.36"

  bool operator==(const CheckReport&) const = default;
};

inline constexpr std::size_t kMaxReportText = 512;
inline constexpr std::size_t kMaxReportItems = 64;

// At most kMaxFrameBody bytes.
std::string write_report(const CheckReport& report);
Result<CheckReport> read_report(std::string_view text);

// How a rank's exchange went.
struct ExchangeOutcome {
  std::uint64_t took_us = 0;
  std::string trouble;      // empty: it went well
  bool is_missing = false;  // this step has nothing to exchange over, and `trouble` says what is missing

  bool operator==(const ExchangeOutcome&) const = default;
};

std::string write_outcome(const ExchangeOutcome& outcome);
Result<ExchangeOutcome> read_outcome(std::string_view text);

}  // namespace bootstrap
