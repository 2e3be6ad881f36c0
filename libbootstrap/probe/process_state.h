// Whether a process of this host goes on, or is about to end, and whether this one is at work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "probe/file_tree.h"

namespace bootstrap {

// False for a process that has gone, that is ending, or that was sent SIGKILL. `root`: "/", but for tests.
bool runs_on(const FileTree& root, pid_t process);

// Whether a thread of this process other than the caller's is at work: it runs, waits for a processor or for a disk, or
// is traced. One that waits for others, as in poll(2), is not.
bool is_another_thread_busy(const FileTree& root);

}  // namespace bootstrap
