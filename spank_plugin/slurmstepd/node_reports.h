// What a node reports to srun, in datagrams that may be lost: that it has the plugin, that its tasks are set up or
// refused, and how they ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/network.h"
#include "core/step/failure.h"
#include "core/step/receipts.h"
#include "probe/files.h"
#include "spank_api.h"

namespace bootstrap {

class NodeReports {
 public:
  // The one of this slurmstepd.
  static NodeReports& current();

  // In init, before other plugins take time, for a normal step in which srun receives reports: reads srun's address,
  // opens the socket, shares memory with the tasks, and sends hello. The socket stays in this host's network, even if a
  // plugin gives the tasks another. Called again in user_init, for a lost datagram, and for a Slurm that has no
  // environment in init.
  void say_hello(spank_t spank);

  // In a task, when task_init has run to its end: the last task of the node reports that all have. Allocates nothing.
  void pass_task(std::uint32_t task) const noexcept;

  // In user_init: this node will start no task. `why` comes without a full stop.
  void refuse(std::string_view why);

  // In task_post_fork: a task of this node runs as `process`.
  void note_task(pid_t process);

  // In task_exit: how a task has ended. Fills in the time, and what the kernel shows of memory and of the other tasks.
  // That takes up to 0.3 s for the first task that was killed.
  void send(Failure failure);

  // In task_exit, for a task of a step that is set up: reports if task_init did not run in it.
  void note_end(std::uint32_t task, std::int32_t wait_status);

 private:
  static constexpr int kMostFailures = 512;    // of one node: srun compares whether all tasks failed alike
  static constexpr int kMostSuccesses = 64;    // likewise: other tasks may wait for these
  static constexpr int kMostMemoryLooks = 16;  // cgroup version 1 has a folder for each task to read

  std::string text_of(NodeReport::Kind kind, std::string_view reason = {}) const;
  void send_text(std::string_view text) const noexcept;
  bool do_others_go_on(const Failure& failure);

  std::optional<FailureAddress> to_;
  IpAddress host_;  // srun's
  NodeReport node_;
  Descriptor socket_;
  std::uint64_t socket_number_ = 0;  // its inode: Slurm may have closed the descriptor, and opened something else there
  std::atomic<std::uint32_t>* passed_ = nullptr;  // shared by all tasks: how many have passed, then a flag for each
  std::string passed_text_;                       // what the last task sends
  bool is_never_set_reported_ = false;
  std::chrono::steady_clock::time_point start_;
  std::vector<pid_t> tasks_;
  int failures_ = 0;
  int successes_ = 0;
  bool has_looked_at_others_ = false;
};

}  // namespace bootstrap
