// The real functions behind the hooks that programs call often: looked for once for each place that calls.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hooked_functions.h"

#include <link.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "comm/nccl/nccl_library.h"

namespace bootstrap {
namespace {

// An entry is never deleted and its caller and function never change, so that it is read without a lock.
struct Entry {
  const void* caller;
  void* function;
  std::atomic<unsigned long long> unloads;  // of libraries, when the function was last found
  Entry* next;
};

constinit std::array<std::atomic<Entry*>, 64> entries{};

std::atomic<Entry*>& place_of(const void* caller) {
  const auto number = reinterpret_cast<std::uintptr_t>(caller);
  return entries[(number ^ (number >> 6U) ^ (number >> 12U)) % entries.size()];
}

// A function stays where it is as long as no library goes (dl_iterate_phdr(3)).
unsigned long long count_unloads() {
  unsigned long long count = 0;
  (void)::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_subs;
        return 1;
      },
      &count);
  return count;
}

}  // namespace

void* hooked_function(const void* caller, const char* name) noexcept {
  try {
    auto& place = place_of(caller);
    const auto unloads = count_unloads();
    Entry* known = place.load();
    while (known != nullptr && known->caller != caller) known = known->next;
    if (known != nullptr && known->unloads == unloads) return known->function;
    void* const function = nccl::function_for(caller, name);
    if (known != nullptr && known->function == function) {
      known->unloads = unloads;
    } else if (function != nullptr) {
      auto* const entry = new Entry{caller, function, unloads, place.load()};
      while (!place.compare_exchange_weak(entry->next, entry)) {
      }
    }
    return function;
  } catch (const std::exception&) {
    return nullptr;  // without memory
  }
}

}  // namespace bootstrap
