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

// Keeps what is known of a communicator that has been made, for the calls that split it. The last 64 are kept.
void remember(nccl::Comm comm, const WaitingCall& call) noexcept;

// A call of `function` that all members of `parent` make, in the same order; nothing where `parent` is not known.
std::optional<WaitingCall> call_on(nccl::Comm parent, std::string_view function) noexcept;

}  // namespace bootstrap
