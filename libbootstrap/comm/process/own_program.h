// How this code is started as a program of its own: the command line, and the file where it may be gone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/util/result.h"
#include "probe/file_descriptor.h"

namespace bootstrap {

// The only argument of a helper that is a program of ours, and not the library.
inline constexpr const char* kHelperArgument = "--helper";

struct OwnProgram {
  std::string program;
  std::vector<std::string> arguments;
  Descriptor image;  // a copy of the library, where its file was deleted or replaced; else not open
};

// The library has an entry point (preload/helper_entry.cc), and the loader of this process can start it as a program.
// `image_path` names the image in the new process. From the first call on, the file may be deleted or replaced.
Result<OwnProgram> own_program(const std::string& image_path);

}  // namespace bootstrap
