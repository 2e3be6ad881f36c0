// Whether a process of this host goes on, or is about to end. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "probe/file_tree.h"

namespace bootstrap {

// False for a process that has gone, that is ending, or that was sent SIGKILL. `root`: "/", but for tests.
bool runs_on(const FileTree& root, pid_t process);

}  // namespace bootstrap
