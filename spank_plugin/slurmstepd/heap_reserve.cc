// Heap for user_init where the memory of slurmstepd is locked.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/heap_reserve.h"

#include <sys/resource.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

// A larger block would be a mapping of its own, which goes back to the kernel when it is freed.
constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::size_t kOfSlurm = 4;  // blocks

// 2 MiB, of which a step of 8,000 ranks takes 0.6.
std::array<void*, 32> blocks{};
void* behind_them = nullptr;  // stays: what is freed at the end of the heap goes back to the kernel, too

bool is_memory_locked() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const auto status = FileTree("/").read("proc/self/status");
  for (const auto line : split(status, '\n')) {
    if (line.starts_with("VmLck:")) return line.find_first_of("123456789") != std::string_view::npos;
  }
  return false;
}

void release(std::size_t first, std::size_t end) noexcept {
  for (auto i = first; i < end; ++i) {
    std::free(blocks[i]);
    blocks[i] = nullptr;
  }
}

}  // namespace

void take_heap_reserve() {
  if (behind_them != nullptr || !is_memory_locked()) return;
  for (auto& block : blocks) block = std::malloc(kBlock);
  behind_them = std::malloc(1);
}

void release_heap_for_us() noexcept { release(kOfSlurm, blocks.size()); }
void release_heap_for_slurm() noexcept { release(0, kOfSlurm); }

}  // namespace bootstrap
