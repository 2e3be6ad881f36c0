// What ranks need of this machine to communicate: routes, RDMA devices, memory. Sends no packet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

struct Machine {
  std::string host;                 // its name, from the kernel
  std::string kernel;               // "Linux 6.1.0-18-amd64"
  std::string libc;                 // "glibc 2.36"
  std::string nvidia_module;        // version of NVIDIA's kernel module, "580.65.06"; empty: none is loaded
  std::uint64_t shm_free = 0;       // bytes that an ordinary user can still put into /dev/shm
  std::uint64_t locked_memory = 0;  // bytes that this process may lock (ulimit -l); UINT64_MAX: no limit
  std::uint32_t rdma_devices = 0;
};

// Tests put a `root` before every path. A file that does not exist is no error.
Machine read_machine(const std::string& root = "");

// If the step needs an interface, adds to the facts what the choice depends on. Tests put a `root` before every path.
void gather_network(StepFacts& facts, const Settings& settings, const std::string& root = {});

// False if this machine does not have the address, which a bind shows.
bool is_own_address(std::string_view address);

}  // namespace bootstrap
