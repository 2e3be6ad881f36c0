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
  std::uint32_t topic = 0;
  std::array<std::uint32_t, 2> calls{};  // on it so far, by Callers
};

// Plain static objects: they need no constructor and no destructor to run.
constinit std::mutex mutex;
constinit std::array<Known, 64> known_communicators;
constinit std::size_t next = 0;

Known* find(nccl::Comm comm) {
  for (auto& entry : known_communicators) {
    if (entry.comm == comm) return &entry;
  }
  return nullptr;
}

// Nothing where the communicator has not been known.
std::optional<std::uint32_t> topic_of_next_call(nccl::Comm comm, Callers callers) {
  const std::lock_guard lock(mutex);
  auto* const entry = comm == nullptr ? nullptr : find(comm);
  if (entry == nullptr) return std::nullopt;
  const auto kind = static_cast<std::uint32_t>(callers);
  return mixed_topic(entry->topic, 2 * ++entry->calls[kind] + kind);
}

}  // namespace

std::uint32_t topic_of(const nccl::UniqueId* ids, std::size_t count) noexcept {
  Checksum checksum;
  for (std::size_t i = 0; i < count; ++i) {
    for (const char byte : ids[i].internal) checksum.add(static_cast<unsigned char>(byte));
  }
  return checksum.folded();
}

std::uint32_t mixed_topic(std::uint32_t topic, std::uint32_t number) noexcept {
  Checksum checksum;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    checksum.add(static_cast<unsigned char>(topic >> shift));
    checksum.add(static_cast<unsigned char>(number >> shift));
  }
  return checksum.folded();
}

void remember(nccl::Comm comm, std::uint32_t topic) noexcept {
  if (comm == nullptr) return;
  const std::lock_guard lock(mutex);
  auto* entry = find(comm);  // the address of one that has been destroyed may come again
  if (entry == nullptr) entry = &known_communicators[next++ % known_communicators.size()];
  *entry = {.comm = comm, .topic = topic, .calls = {}};
}

void forget_topic(nccl::Comm comm) noexcept {
  if (comm == nullptr) return;
  const std::lock_guard lock(mutex);
  if (auto* const entry = find(comm); entry != nullptr) *entry = {};
}

std::optional<WaitingCall> call_on(const nccl::Functions& nccl, nccl::Comm parent, std::string_view function,
                                   Callers callers) noexcept {
  const auto topic = topic_of_next_call(parent, callers);
  int ranks = 0;
  int rank = 0;
  if (!topic || nccl.count == nullptr || nccl.user_rank == nullptr) return std::nullopt;
  if (nccl.count(parent, &ranks) != nccl::kSuccess || nccl.user_rank(parent, &rank) != nccl::kSuccess) {
    return std::nullopt;
  }
  if (ranks < 2 || rank < 0) return std::nullopt;
  WaitingCall call;
  call.function = function;
  call.ranks = static_cast<std::uint32_t>(ranks);
  call.rank = static_cast<std::uint32_t>(rank);
  call.topic = *topic;
  call.version = nccl.version;
  return call;
}

}  // namespace bootstrap
