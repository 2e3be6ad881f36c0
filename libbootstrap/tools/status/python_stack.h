// The stack of a Python process, as py-spy prints it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/status/sight.h"

namespace bootstrap {

// In front of a frame of the user's own code, as the package of a frame is known by its path alone.
inline constexpr std::string_view kOwnCode = "* ";

// The frames of the main thread in the output of `py-spy dump --full-filenames`, innermost first: "all_reduce
// (torch/x.py:12)", "* main (train.py:12)". Empty where the output has no stack.
std::vector<std::string> parse_stack(std::string_view output);

// One sentence about what py-spy complains of; what an administrator can allow, where that is the reason.
std::string explain_stack_failure(std::string_view output, std::string_view node);

// Runs `py-spy dump --nonblocking`, which reads the memory of the process and does not stop it. For processes whose
// program is a Python; within two seconds.
void add_stack(RankSight& sight, const std::string& py_spy);

// "all_reduce, called by main (train.py:12)": the innermost function, and the place in the user's own code. `stack` has
// at least one frame.
std::string describe_stack(const std::vector<std::string>& stack);

}  // namespace bootstrap
