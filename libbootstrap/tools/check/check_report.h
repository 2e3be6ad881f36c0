// The report of one rank of a check, which it sends to rank 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/hardware/near_cores.h"
#include "core/step/rank_layout.h"
#include "core/util/records.h"

namespace bootstrap {

// How the rank reached MASTER_ADDR:MASTER_PORT. If that failed, it sent the report through the side port.
enum class Reach : std::uint8_t {
  kReached,
  kNoName,       // the name does not resolve here
  kRefused,      // no process listens
  kSilent,       // no answer: packets are dropped on the way
  kUnreachable,  // no route, or the interface is down
  kForeign,      // another program answers
  kLast = kForeign,
};

// What gave the task its variables. Where it has none: what became of srun's decision to set the step up.
enum class SetBy : std::uint8_t {
  kNothing,  // there is no trace of a decision
  kPlugin,
  kPreload,
  kUnread,  // nothing: slurmstepd did not load the plugin
  kRead,    // nothing: the plugin's user_init read the decision, and its task_init did not set the variables
  kLast = kRead,
};

struct CheckReport {
  Rank rank = 0;
  std::string host;  // its name, from the kernel

  // The plan, as the program sees it.
  std::string address;     // MASTER_ADDR
  std::uint16_t port = 0;  // MASTER_PORT; 0: it is no port
  std::uint32_t size = 0;
  std::uint32_t layout = 0;  // fingerprint of which rank is on which host
  SetBy set_by = SetBy::kNothing;
  std::string plan_trouble;          // what is wrong with the plan
  std::vector<std::string> changed;  // variables that do not have the value that we set

  // The way to rank 0.
  Reach reach = Reach::kReached;
  std::string reach_trouble;         // the system's message if it failed
  std::string target;                // the address of that name: "10.1.0.1"
  std::string interface;             // "eth0"
  std::uint64_t round_trip_us = 0;   // microseconds
  std::uint64_t clock_skew_us = 0;   // between rank 0's clock and this one
  std::uint64_t clock_error_us = 0;  // at most this much wrong

  // The exchange. Rank 0 asks for it when it has all reports; then the ranks send their reports again.
  bool has_exchanged = false;
  std::uint64_t exchange_us = 0;
  std::string exchange_trouble;  // empty: it went well
  bool lacks_exchange = false;   // this step has nothing to exchange over; `exchange_trouble` names what is missing

  // Libraries.
  bool has_pmix = false;
  std::string pmix_client;  // "libpmix.so.2 4.2.2"
  std::string pmix_server;  // "4.2.2rc2"; empty: unknown
  std::string pmix_trouble;
  std::string nccl_version;  // "2.28.9"; empty: not there
  std::string nccl_path;
  std::string nccl_trouble;    // why a library that is there cannot be used
  std::string cuda;            // of the driver and its module, "13.0 (driver 580.65.06)"; empty: not there
  std::string openmp_threads;  // OMP_NUM_THREADS

  // GPUs.
  bool has_gpus = false;                 // Slurm gave GPUs to the step
  bool is_nvidia = false;                // they are NVIDIA's
  bool may_share_gpus = false;           // the user asked for sharing
  bool leaves_gpus = false;              // the program chooses them: --bootstrap-gpu=off
  std::uint32_t gpus_on_node = 0;        // that the step was given here; 0: unknown
  std::vector<std::string> gpu_list;     // of the task's list: device nodes or UUIDs; "?": an entry that does not exist
  std::string own_gpu;                   // one of them; empty: not known
  std::vector<std::string> open_gpus;    // device nodes that this task can open
  std::vector<std::string> closed_gpus;  // device nodes that exist but are hidden from it
  std::string gpu_hint;                  // the option of srun that ends the hiding
  NearRow near;                          // `near --show` fills all of it, a check `near` and `nearness`

  // Versions. The rank with local rank 0 examines its node.
  std::string library;         // of the libbootstrap.so.0 that the loader finds; empty: none
  std::string plugin;          // of the plugin in plugstack.conf; empty: none
  std::string plugin_slurm;    // the Slurm that it was built for: "22.05.8"
  std::string plugin_trouble;  // why there is none; empty, too, where Slurm's configuration is not here
  std::string slurm;           // on this node; empty: unknown

  // Python, likewise examined by the rank with local rank 0.
  std::string python;       // "3.11.2 (/usr/bin/python3)"; empty: none
  std::string frameworks;   // "torch 2.6.0, mpi4py 4.0.3"
  std::string python_nccl;  // of the Python's packages, "2.21.5"
  std::string python_nccl_path;

  // The machine.
  std::string cpus;  // that the task may run on, "0-3,8"
  std::uint32_t cpu_count = 0;
  std::uint32_t cpus_on_node = 0;   // that the step was given here; 0: unknown
  std::uint64_t shm_free = 0;       // bytes in /dev/shm
  std::uint64_t locked_memory = 0;  // bytes, UINT64_MAX: no limit
  std::uint32_t rdma_devices = 0;
  std::string system;  // "Linux 6.1.0-18-amd64, glibc 2.36"

  bool operator==(const CheckReport&) const = default;
};

inline auto fields_of(CheckReport& report) {
  return std::tie(
      report.rank, report.host, report.address, report.port, report.size, report.layout, report.set_by,
      report.plan_trouble, report.changed, report.reach, report.reach_trouble, report.target, report.interface,
      report.round_trip_us, report.clock_skew_us, report.clock_error_us, report.has_exchanged, report.exchange_us,
      report.exchange_trouble, report.lacks_exchange, report.has_pmix, report.pmix_client, report.pmix_server,
      report.pmix_trouble, report.nccl_version, report.nccl_path, report.nccl_trouble, report.cuda,
      report.openmp_threads, report.has_gpus, report.is_nvidia, report.may_share_gpus, report.leaves_gpus,
      report.gpus_on_node, report.gpu_list, report.own_gpu, report.open_gpus, report.closed_gpus, report.gpu_hint,
      report.near.cores, report.near.memory, report.near.gpu, report.near.cards, report.near.near, report.near.nearness,
      report.library, report.plugin, report.plugin_slurm, report.plugin_trouble, report.slurm, report.python,
      report.frameworks, report.python_nccl, report.python_nccl_path, report.cpus, report.cpu_count,
      report.cpus_on_node, report.shm_free, report.locked_memory, report.rdma_devices, report.system);
}

}  // namespace bootstrap
