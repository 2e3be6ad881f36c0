// TCP for the NCCL double: each connection begins with a magic number, and each wait ends when a flag says so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "nccl_double.h"

namespace nccl_double {

// Thrown inside the double; its C functions answer with the code, and ncclGetLastError with the text.
struct Trouble {
  ncclResult_t code;
  std::string text;
};

using Magic = std::uint64_t;
using AbortFlag = std::atomic<bool>;

int version();                                   // that this copy stands for, as ncclGetVersion tells it
[[noreturn]] void hang(const AbortFlag& abort);  // until the flag says so

// Who is asked for at a port: what a stranger there does to NCCL depends on it.
enum class Port : std::uint8_t { kBootstrap, kProxy };

class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  // On the address of the interface that NCCL_SOCKET_IFNAME leaves, a port that is free.
  static Socket listener();
  static Socket listener_at(const sockaddr_in& address);
  sockaddr_in address() const;

  // Tries again while nobody listens there, as NCCL does.
  static Socket connect(const sockaddr_in& address, Magic magic, const AbortFlag& abort);
  // The next connection that begins with this magic; the others are strangers. One that says nothing keeps it waiting,
  // as it does NCCL's root.
  Socket accept(Magic magic, Port port, const AbortFlag& abort) const;

  void send(const void* bytes, std::size_t size, const AbortFlag& abort) const;
  void receive(void* bytes, std::size_t size, const AbortFlag& abort) const;
  // Sends on this one and receives on the other at the same time: both may be larger than the kernel's buffers.
  void swap_with(const Socket& other, const void* sent, void* received, std::size_t size, const AbortFlag& abort) const;

 private:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace nccl_double
