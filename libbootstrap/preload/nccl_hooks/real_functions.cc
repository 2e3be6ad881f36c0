// The real functions behind the hooks that programs call often: looked for once for each place that calls.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/real_functions.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>

#include "comm/nccl/nccl_library.h"

namespace bootstrap {
namespace {

// An entry is never deleted, and nothing but `next` of it changes, so that it is read without a lock. One place can
// call several functions: by a pointer, or where it calls a function that ends with a jump to ours.
struct Entry {
  const void* caller;
  const char* name;
  void* function;
  Entry* next;
};

constinit std::array<std::atomic<Entry*>, 64> entries{};

std::atomic<Entry*>& place_of(const void* caller) {
  const auto number = reinterpret_cast<std::uintptr_t>(caller);
  return entries[(number ^ (number >> 6U) ^ (number >> 12U)) % entries.size()];
}

// A reference of our own, for good: what is in the table must stay where it is. NCCL's threads keep it there in any
// case.
void keep_loaded(const void* function) {
  Dl_info info{};
  if (::dladdr(function, &info) != 0 && info.dli_fname != nullptr)
    (void)::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

void* real_function(const void* caller, const char* name) noexcept {
  try {
    auto& place = place_of(caller);
    for (const Entry* known = place.load(std::memory_order_acquire); known != nullptr; known = known->next) {
      if (known->caller == caller && std::strcmp(known->name, name) == 0) return known->function;
    }
    void* const function = nccl::function_for(caller, name);
    if (function == nullptr) return nullptr;
    keep_loaded(function);
    auto* const entry = new Entry{caller, name, function, place.load()};
    while (!place.compare_exchange_weak(entry->next, entry)) {
    }
    return function;
  } catch (const std::exception&) {
    return nullptr;  // without memory
  }
}

}  // namespace bootstrap
