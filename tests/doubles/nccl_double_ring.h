// How the ranks of the NCCL double find each other: roots that listen, and a ring over which they gather.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nccl_double_socket.h"

namespace nccl_double {

// What is in an ncclUniqueId; the rest of its 128 bytes is zero, as in NCCL's.
struct Handle {
  Magic magic;
  sockaddr_in address;
  char rest_of_address[12];  // NCCL leaves room for IPv6
};

// Starts a root: a listening socket and a thread that stays until all of its ranks have checked in.
// With NCCL_COMM_ID there is none yet: rank 0 starts it at that address, and the id names nothing else.
ncclUniqueId start_root();
// What NCCL_DOUBLE_INIT says of this rank.
std::string fault_of_init(int rank);

class Ring {
 public:
  // Checks in with the roots and comes back when both neighbours are connected.
  Ring(const std::vector<ncclUniqueId>& ids, int rank, int ranks, const AbortFlag& abort);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Magic magic() const { return magic_; }

  // `all` has room for `size` bytes of each rank; this one's are at their place already.
  void all_gather(void* all, std::size_t size, const AbortFlag& abort) const;

 private:
  int rank_;
  int ranks_;
  Magic magic_;
  Socket next_;
  Socket previous_;
};

// NCCL's rule, written down here once more so that the library under test is not its own judge: root number `root` of
// `roots` begins with this rank. The same for root == roots gives `ranks`.
int first_rank(int root, int ranks, int roots);

void set_last_error(const std::string& text);  // and says it on standard output when NCCL_DEBUG is set

}  // namespace nccl_double
