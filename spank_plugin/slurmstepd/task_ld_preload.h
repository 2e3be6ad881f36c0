// libbootstrap.so at the end of the tasks' LD_PRELOAD, where that was asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/settings/settings.h"
#include "core/util/result.h"
#include "spank_api.h"

namespace bootstrap {

// Where the library is on the nodes: the site's word, or where it was installed.
std::string preload_library(const Settings& settings);

// In user_init, where the files are the node's, whichever container a task is started in, and before or behind which
// plugin we stand: why the library cannot be preloaded. The tasks start without it then.
Status check_preload(const Settings& settings);

// In the forked child that becomes the task.
Status preload(spank_t spank, const Settings& settings);

}  // namespace bootstrap
