// Parts of the C++ runtime in place of libstdc++'s, which run before `main` in every process that has us preloaded: its
// memory for exceptions takes 72 KiB from malloc for the day on which there is none (libsupc++/eh_alloc.cc), and its
// system_error constructs two objects. Measured: 25 of the 85 microseconds that the library then added to a process.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

namespace {

// What the runtime keeps in front of a thrown object (Itanium C++ ABI, 2.2.1) takes 128 bytes on x86-64 and aarch64;
// how much exactly is its own affair, as long as it fits.
constexpr std::size_t kHeader = 256;
constexpr std::size_t kSpareSize = kHeader + 256;
constexpr std::size_t kSpares = 8;

alignas(std::max_align_t) char spares[kSpares][kSpareSize];
std::atomic<bool> is_taken[kSpares];

char* take(std::size_t size) noexcept {
  if (void* const memory = std::calloc(1, size)) return static_cast<char*>(memory);
  for (std::size_t i = 0; i < kSpares && size <= kSpareSize; ++i) {
    if (is_taken[i].exchange(true)) continue;
    std::memset(spares[i], 0, kSpareSize);
    return spares[i];
  }
  std::abort();
}

void give_back(char* memory) noexcept {
  for (std::size_t i = 0; i < kSpares; ++i) {
    if (memory == spares[i]) return is_taken[i].store(false);
  }
  std::free(memory);
}

}  // namespace

// Found before libstdc++.a is searched, so that its own are not linked. The names are those of the C++ ABI, and of
// libstdc++ for what std::mutex throws when a lock cannot be taken.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,cert-dcl58-cpp)
extern "C" {
void* __cxa_allocate_exception(std::size_t size) noexcept { return take(kHeader + size) + kHeader; }
void __cxa_free_exception(void* thrown) noexcept { give_back(static_cast<char*>(thrown) - kHeader); }
void* __cxa_allocate_dependent_exception() noexcept { return take(kHeader); }
void __cxa_free_dependent_exception(void* exception) noexcept { give_back(static_cast<char*>(exception)); }
}

namespace std {
void __throw_system_error(int error) { throw runtime_error(strerror(error)); }

// libstdc++'s strings of before C++11, which its own exceptions hold, are linked together with a use of this one, and
// it throws a system_error since gcc 13. Nothing here calls it: code that did would not link, as the rest is not here.
void random_device::_M_init(const char* /*token*/, size_t /*length*/) { throw runtime_error("no random_device here"); }
}  // namespace std
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,cert-dcl58-cpp)
