// Reserves TCP ports so that only a server that sets SO_REUSEADDR, as rendezvous servers do, can listen on them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"
#include "probe/files.h"

namespace bootstrap {

// 127.83.66.1. No server listens there and no connection ends there, so that only a wildcard socket can make an
// exclusive bind to it fail.
inline constexpr std::uint32_t kQuietAddress = (127U << 24) | (83U << 16) | (66U << 8) | 1U;

// A bound socket that does not listen. While it is open, bind(0) and connect() never pick the port, a second
// reservation and a bind without SO_REUSEADDR fail, and PyTorch's TCPStore, NCCL, gRPC and Python's servers can bind
// and listen. Another user's program that sets SO_REUSEADDR can, too: Linux compares users for SO_REUSEPORT only.
class PortReservation {
 public:
  PortReservation() = default;
  PortReservation(PortReservation&&) noexcept = default;
  PortReservation& operator=(PortReservation&&) noexcept = default;
  ~PortReservation() { release(); }

  // Never blocks, opens no file, sends nothing. Fails with kUnavailable and the system's reason; `name` begins the
  // message, such as "MASTER_PORT 25000 on node001".
  static Result<PortReservation> take(std::uint16_t port, const std::string& name = "the port");

  void release() noexcept;
  bool is_held() const { return socket_.is_open(); }

 private:
  explicit PortReservation(Descriptor socket);

  Descriptor socket_;
  // A process that shares this memory may have other descriptors (clone with CLONE_VM alone, as Slurm's contain_spank
  // does): there the number may be another file.
  pid_t owner_ = ::getpid();
};

struct RefusedPort {
  std::string sentence;   // the port, its host, the reason and a remedy
  bool is_users = false;  // the user set this MASTER_PORT: two steps of a job may share it, and one of them listens
};

class StepPorts {
 public:
  // MASTER_PORT on the node of rank 0, and on this node the ports of TensorFlow servers and those of BOOTSTRAP_PORTS.
  // Resets plan.port_to_reserve if MASTER_PORT is refused, and writes into the plan which further ports were free.
  std::vector<RefusedPort> reserve(StepPlan& plan, const StepFacts& facts, const Settings& settings);

  void release() { reservations_.clear(); }

 private:
  Status take_task_ports(StepPlan& plan, const StepFacts& facts, const Settings& settings);

  std::vector<PortReservation> reservations_;
};

}  // namespace bootstrap
