// Whether this process used NCCL and none of our functions saw it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

void note_hook_called() noexcept;  // an interposed function was called

// At the end of a rank's process: one sentence when NCCL's threads are here and nothing was seen of them.
void warn_if_bypassed() noexcept;

}  // namespace bootstrap
