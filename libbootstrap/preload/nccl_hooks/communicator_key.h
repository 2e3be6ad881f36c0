// How the members of a communicator find each other to call the roll: a number that only they have.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "comm/nccl/nccl_library.h"
#include "preload/nccl_hooks/hang_report.h"

namespace bootstrap {

// 32 bits of a checksum over unique ids: what the ranks say to each other must not lead back to the id, half of whose
// entropy, NCCL's 64-bit magic, is all that keeps others out.
std::uint32_t topic_of(const nccl::UniqueId* ids, std::size_t count) noexcept;

// A number that two make together.
std::uint32_t mixed_topic(std::uint32_t topic, std::uint32_t number) noexcept;

// Keeps the topic of a communicator that is being made, for the calls that make others of it. The last 64 are kept.
void remember(nccl::Comm comm, std::uint32_t topic) noexcept;
// The program gives the communicator up: its address may come again as one that we do not see being made.
void forget_topic(nccl::Comm comm) noexcept;

// Who makes calls on a communicator: some make ncclCommShrink, and all make the others.
enum class Callers : std::uint8_t { kAll, kSome };

// A call of `function` that the members of `parent` make, in the same order; nothing where `parent` is not known, or
// not yet there, or has one rank.
std::optional<WaitingCall> call_on(const nccl::Functions& nccl, nccl::Comm parent, std::string_view function,
                                   Callers callers = Callers::kAll) noexcept;

}  // namespace bootstrap
