// Which clients the server answers: those whose address is one of the step's hosts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bootstrap {

class StepHosts {
 public:
  StepHosts() = default;  // not known: everybody is answered

  // Reads names, one a line, from this descriptor to its end, and looks all of them up. Blocks as long as that takes.
  // A name that is not found admits nobody.
  static StepHosts look_up(int names);
  static StepHosts of(const std::vector<std::string>& names);

  // `own` is the server's end of the connection: a client that has the same address runs beside it.
  bool admits(const sockaddr_in& client, const sockaddr_in& own) const;

 private:
  bool is_known_ = false;
  std::vector<std::uint32_t> addresses_;  // sorted, in the order of bytes of the network
};

}  // namespace bootstrap
