// The address of a host name, asked for by srun alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bootstrap {

struct ResolvedName {
  std::string address;       // the first that is no loopback address; empty: there is none
  bool is_unusable = false;  // the name server does not know the name, or all its addresses are loopback addresses
};

// May take as long as the name servers do. A name server that does not answer leaves both as they are.
ResolvedName look_up(const std::string& name);

}  // namespace bootstrap
