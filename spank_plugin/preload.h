// In the forked child that becomes the task: libbootstrap.so at the end of its LD_PRELOAD, where that was asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/settings.h"
#include "spank_api.h"

namespace bootstrap {

// Where the library is on the nodes: the site's word, or where it was installed.
std::string preload_library(const Settings& settings);

// Where Horovod's server is, likewise.
std::string rendezvous_program(const Settings& settings);

// Fails where the task cannot read the file; it starts without the library then.
Status preload(spank_t spank, const Settings& settings);

}  // namespace bootstrap
