// The address of a host name, asked for by srun alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bootstrap {

// "10.0.0.1" or "fd00::1"; empty where the name has no address but a loopback one, or none at all.
std::string look_up(const std::string& name);

}  // namespace bootstrap
