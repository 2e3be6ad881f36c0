// How the members of a communicator find each other to call the roll: a number that only they have.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/communicator_key.h"

#include <array>
#include <mutex>

namespace bootstrap {
namespace {

// FNV-1a, 64 bit, folded to 32.
class Checksum {
 public:
  void add(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }
  std::uint32_t folded() const { return static_cast<std::uint32_t>(value_ ^ (value_ >> 32U)); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

struct Known {
  nccl::Comm comm = nullptr;
  WaitingCall made;         // the call that made it
  std::uint32_t calls = 0;  // on it since
};

// Plain static objects: they need no constructor and no destructor to run.
constinit std::mutex mutex;
constinit std::array<Known, 64> known;
constinit std::size_t next = 0;

Known* find(nccl::Comm comm) {
  for (auto& entry : known) {
    if (entry.comm == comm) return &entry;
  }
  return nullptr;
}

}  // namespace

std::uint32_t topic_of(const nccl::UniqueId* ids, std::size_t count) noexcept {
  Checksum checksum;
  for (std::size_t i = 0; i < count; ++i) {
    for (const char byte : ids[i].internal) checksum.add(static_cast<unsigned char>(byte));
  }
  return checksum.folded();
}

void remember(nccl::Comm comm, const WaitingCall& call) noexcept {
  if (comm == nullptr || call.ranks < 2) return;
  const std::lock_guard lock(mutex);
  auto* entry = find(comm);  // the address of one that has been destroyed may come again
  if (entry == nullptr) entry = &known[next++ % known.size()];
  *entry = {.comm = comm, .made = call, .calls = 0};
}

std::optional<WaitingCall> call_on(nccl::Comm parent, std::string_view function) noexcept {
  const std::lock_guard lock(mutex);
  auto* const entry = parent == nullptr ? nullptr : find(parent);
  if (entry == nullptr) return std::nullopt;
  Checksum checksum;
  const std::uint32_t count = ++entry->calls;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    checksum.add(static_cast<unsigned char>(entry->made.topic >> shift));
    checksum.add(static_cast<unsigned char>(count >> shift));
  }
  auto call = entry->made;
  call.function = function;
  call.topic = checksum.folded();
  return call;
}

}  // namespace bootstrap
