// The CPUs that a process may run on.
// SPDX-License-Identifier: Apache-2.0
#include "probe/cpu_affinity.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kSize = CPU_ALLOC_SIZE(CpuSet::kMaxCpus);

// A fixed cpu_set_t ends at 1024 CPUs, and the kernel refuses a set that is too small for the machine.
struct Mask {
  alignas(cpu_set_t) unsigned char bytes[kSize] = {};
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(bytes); }
};

}  // namespace

CpuSet cores_of(pid_t process) {
  Mask mask;
  CpuSet cores;
  if (::sched_getaffinity(process, kSize, mask.set()) != 0) return cores;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);  // the kernel's word
  for (std::size_t first = 0; first < CpuSet::kMaxCpus; first += kBits) {
    unsigned long word = 0;
    std::memcpy(&word, mask.bytes + first / 8, sizeof word);
    // Most are empty, and a task asks this just before its program starts.
    for (std::size_t bit = 0; word != 0; ++bit, word >>= 1U) {
      if ((word & 1U) != 0) cores.add(first + bit);
    }
  }
  return cores;
}

Status bind_to(const CpuSet& cores) {
  Mask mask;
  for (const auto cpu : cores.members()) CPU_SET_S(cpu, kSize, mask.set());
  if (::sched_setaffinity(0, kSize, mask.set()) == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot bind to cores ", cores.to_list(), ": ", std::strerror(errno)}));
}

}  // namespace bootstrap
