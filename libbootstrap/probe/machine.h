// What this machine has that communication between ranks depends on, from files alone: no socket, no packet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bootstrap {

struct Machine {
  std::string host;                 // the kernel's name of it
  std::string kernel;               // "Linux 6.1.0-18-amd64"
  std::string libc;                 // "glibc 2.36"
  std::string nvidia_module;        // version of NVIDIA's kernel module, "580.65.06"; empty: none is loaded
  std::uint64_t shm_free = 0;       // bytes that an ordinary user can still put into /dev/shm
  std::uint64_t locked_memory = 0;  // bytes that this process may lock (ulimit -l); UINT64_MAX: no limit
  std::uint32_t rdma_devices = 0;
};

// Tests put a `root` before every path. A file that does not exist is no error.
Machine read_machine(const std::string& root = "");

}  // namespace bootstrap
