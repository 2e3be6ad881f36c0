// Ranks that are nothing but sockets: each checks in with its NCCL root and waits for the address of the next rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

// What an ncclUniqueId begins with (ncclBootstrapHandle in src/include/bootstrap.h of NCCL; the same since 2.18).
struct RootHandle {
  std::uint64_t magic;
  sockaddr_in address;
};

// NCCL 2.28's own: what a rank sends its root (extInfo in src/bootstrap.cc: 172 bytes; 2.29 has a number more).
using Address = std::array<char, 28>;       // ncclSocketAddress: room for IPv6
using ConnectInfo = std::array<char, 128>;  // ringConnectInfo: an address, or a handle of a network plugin
struct CheckIn {
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t root;
  std::int32_t roots;
  Address answer_to;
  ConnectInfo ring;
};
static_assert(sizeof(CheckIn) == 172);

// In front of what goes over each connection: the magic of the root, the kind of socket (1: bootstrap), and a size.
struct Greeting {
  std::array<char, 8> magic;
  std::uint32_t kind;
  std::uint32_t size;
};
static_assert(sizeof(Greeting) == 16);

struct RootTimes {
  double first_ms = 0;      // from the release of all ranks to the first answer
  double last_ms = 0;       // to the last
  std::size_t answers = 0;  // right ones: the ring address of the next rank
  std::string trouble;      // empty: all ranks have their answers
};

// Lets `ranks` ranks check in with these roots, as those of one communicator do, all at once. NCCL's pause of more than
// 256 ranks on a root (NCCL_UID_STAGGER_*) is left out: this is the rate of the root. Comes back after 20 s at most.
RootTimes check_in_all(const std::vector<RootHandle>& roots, std::uint32_t ranks);

}  // namespace bench
