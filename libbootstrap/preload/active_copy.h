// Which of several copies of this library in one process acts: LD_PRELOAD can name two, or one beside a linked one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

// The one whose functions the program finds; the others do nothing. Else one copy would hold the port against the
// other.
bool is_active_copy() noexcept;

}  // namespace bootstrap
