// Calls that make communicators, from the program's call until the communicator is there: it may be grouped with
// others, and it may be made after the call has come back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "preload/nccl_hooks/hang_watchdog.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {

struct WatchedCall {
  const HookedStep* step = nullptr;
  nccl::Functions nccl;
  WaitingCall call;
  std::optional<WaitingCall> of_new_ranks;  // ncclCommGrow, in a rank that was there and has the unique id
  std::size_t roots = 0;                    // for the report; 0 where there are none
  nccl::Comm* result = nullptr;             // where NCCL puts the communicator
  std::uint32_t topic = 0;                  // of that communicator, for the calls that make others of it
  nccl::Comm parent = nullptr;              // of ncclCommSplit and ncclCommShrink: its state tells of the new one, too
  nccl::Comm comm = nullptr;                // once it is known
  std::chrono::steady_clock::time_point start;
  std::vector<std::unique_ptr<HangWatchdog>> watches;
};

// Around NCCL's function: begin before it, and end with what it has answered.
void begin_call(WatchedCall& call);
void end_call(WatchedCall&& call, nccl::ResultCode code);

// Around ncclGroupStart and ncclGroupEnd of this thread: calls in between end with the outermost group.
void enter_group() noexcept;
std::vector<WatchedCall> leave_group();

// What ncclCommGetAsyncError has told the program.
void note_state(nccl::Comm comm, nccl::ResultCode state) noexcept;
// The program gives the communicator up.
void forget(nccl::Comm comm) noexcept;

}  // namespace bootstrap
