// Holds a TCP port so that only a server that sets SO_REUSEADDR, as rendezvous servers do, can listen on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/util/result.h"

namespace bootstrap {

// 127.83.66.1. No server listens there and no connection ends there, so on this address only a wildcard socket can be
// in the way of an exclusive bind.
inline constexpr std::uint32_t kQuietAddress = (127U << 24) | (83U << 16) | (66U << 8) | 1U;

// A bound socket that does not listen. While it lives bind(0) and connect() never pick the port, a second reservation
// and a bind without SO_REUSEADDR are refused, and PyTorch's TCPStore, NCCL, gRPC and Python's servers can bind and
// listen. It cannot keep out another user's program that sets SO_REUSEADDR: Linux compares users for SO_REUSEPORT only.
class PortReservation {
 public:
  PortReservation() = default;
  PortReservation(PortReservation&& other) noexcept : socket_(std::exchange(other.socket_, -1)), owner_(other.owner_) {}
  PortReservation& operator=(PortReservation&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~PortReservation() { release(); }

  // Never blocks, opens no file, sends nothing. Fails with kUnavailable and the system's reason; `name` begins the
  // message, such as "MASTER_PORT 25000 on node001".
  static Result<PortReservation> take(std::uint16_t port, const std::string& name = "the port");

  void release() noexcept;
  bool is_held() const { return socket_ >= 0; }

 private:
  explicit PortReservation(int socket) : socket_(socket), owner_(::getpid()) {}

  int socket_ = -1;
  // A process that shares our memory need not share our descriptors (clone with CLONE_VM alone, as Slurm's
  // contain_spank does): the number may belong to another file there.
  pid_t owner_ = 0;
};

}  // namespace bootstrap
