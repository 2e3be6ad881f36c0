// The real functions behind the hooks that programs call often: looked for once for each place that calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

// nccl::function_for(), looked for once; its library stays loaded then. Null where there is none. `name` is a literal.
void* real_function(const void* caller, const char* name) noexcept;

}  // namespace bootstrap
