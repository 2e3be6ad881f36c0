// Which of several copies of this library in one process acts: LD_PRELOAD can name two, or one beside a linked one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

// The one whose functions the program finds; the others only pass calls on. Wrong alarms would be the port that one
// copy holds against the other, and NCCL calls that one saw and the other did not.
bool is_active_copy() noexcept;

}  // namespace bootstrap
