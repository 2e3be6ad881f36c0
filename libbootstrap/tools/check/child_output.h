// Another program's standard output, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "probe/deadline.h"
#include "probe/file_descriptor.h"

namespace bootstrap {

// The program is found in PATH and runs beside this process, without LD_PRELOAD: ours would take it for a rank.
class ChildOutput {
 public:
  // No words: no program.
  explicit ChildOutput(const std::vector<std::string>& words);
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;
  ~ChildOutput();  // ends it

  bool is_started() const { return process_ > 0; }
  // What it has written when it ends, or until the deadline.
  std::string read(Deadline deadline);

 private:
  pid_t process_ = -1;
  Descriptor output_;
};

}  // namespace bootstrap
