// Environments of the world outside: this process's own, and captured ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/settings/settings.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

Environment process_environment();

// process_settings(), but in a program with the rights of another user without the files to load: its caller must not
// name code to run.
Settings trusted_settings(const Environment& environment);

// A file written by `env -0` or `env`, or "-" for standard input. With `env` a value of several lines is cut to the
// first, since there the end of a value cannot be told. Fails for what is no environment.
Result<Environment> captured_environment(const std::string& path);

}  // namespace bootstrap
