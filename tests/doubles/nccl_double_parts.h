// The parts of the NCCL double: TCP with waits that a flag ends, the roots and rings that connect ranks, and
// communicators.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_double.h"

namespace nccl_double {

// Thrown inside the double; its C functions return the code, and ncclGetLastError the text.
struct Trouble {
  ncclResult_t code;
  std::string text;
};

using Magic = std::uint64_t;
using AbortFlag = std::atomic<bool>;

int version();                                   // of NCCL, as ncclGetVersion of this copy returns it
[[noreturn]] void hang(const AbortFlag& abort);  // until the flag is set

// The owner of a port: NCCL treats a stranger differently at each.
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

  // Listens at a free port of the interface that NCCL_SOCKET_IFNAME selects.
  static Socket listener();
  static Socket listener_at(const sockaddr_in& address);
  sockaddr_in address() const;

  // Tries again while there is no listener, as NCCL does.
  static Socket connect(const sockaddr_in& address, Magic magic, const AbortFlag& abort);
  // The next connection that begins with this magic number; the others are strangers. A connection that sends nothing
  // blocks this call, as it blocks NCCL's root.
  Socket accept(Magic magic, Port port, const AbortFlag& abort) const;

  void send(const void* bytes, std::size_t size, const AbortFlag& abort) const;
  void receive(void* bytes, std::size_t size, const AbortFlag& abort) const;
  // Sends on this socket and receives on the other at the same time: the data may be larger than the kernel's buffers.
  void swap_with(const Socket& other, const void* sent, void* received, std::size_t size, const AbortFlag& abort) const;

 private:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

// The content of an ncclUniqueId; the rest of its 128 bytes is zero, as in NCCL.
struct Handle {
  Magic magic;
  sockaddr_in address;
  char rest_of_address[12];  // NCCL leaves room for IPv6
};

// Starts a root: a listening socket and a thread that stays until all of its ranks have checked in.
// With NCCL_COMM_ID it starts none: rank 0 starts the root at that address, and the id has only this address.
ncclUniqueId start_root();
// The fault that NCCL_DOUBLE_INIT names for this rank.
std::string fault_of_init(int rank);

class Ring {
 public:
  // Checks in with the roots, and returns when both neighbours are connected.
  Ring(const std::vector<ncclUniqueId>& ids, int rank, int ranks, const AbortFlag& abort);

  Magic magic() const { return magic_; }

  // `all` has room for `size` bytes of each rank; the bytes of this rank are in it already.
  void all_gather(void* all, std::size_t size, const AbortFlag& abort) const;

 private:
  int rank_;
  int ranks_;
  Magic magic_;
  Socket next_;
  Socket previous_;
};

// The first rank of root number `root` of `roots`; `ranks` if root == roots. NCCL's rule, written a second time so that
// the tests do not compare the library with itself.
int first_rank(int root, int ranks, int roots);

void set_last_error(const std::string& text);  // and prints it when NCCL_DEBUG is set

// Calls `work`, and returns the code of its Trouble.
ncclResult_t guarded(const std::function<void()>& work) noexcept;
const char* last_error();

// The PCI bus id, as one number, of the calling thread's device in CUDA or HIP; -1 if neither is loaded.
std::int64_t bus_of_thread();

}  // namespace nccl_double

struct ncclComm {
  ncclComm(int comm_rank, int comm_ranks, bool is_blocking)
      : rank(comm_rank), ranks(comm_ranks), blocking(is_blocking), bus(nccl_double::bus_of_thread()) {}
  ~ncclComm() {
    if (worker.joinable()) worker.join();
  }

  // Makes the ring, compares the ranks and connects them to their proxies.
  void build(const std::vector<ncclUniqueId>& ids);
  void all_reduce(const float* from, float* to, std::size_t count) const;

  // Does the work at once on a blocking communicator; else in a thread, and returns ncclInProgress.
  ncclResult_t start(std::function<void(ncclComm&)> work);

  int rank;
  int ranks;
  bool blocking;
  std::int64_t bus;
  nccl_double::AbortFlag abort{false};
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> is_built{false};
  std::unique_ptr<nccl_double::Ring> ring;
  std::vector<nccl_double::Socket> proxies;  // its own, which keeps listening, and the connections of two ranks
  std::thread worker;
};
