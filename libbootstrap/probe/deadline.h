// When a wait ends, by a clock that nobody sets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace bootstrap {

using Deadline = std::chrono::steady_clock::time_point;

}  // namespace bootstrap
