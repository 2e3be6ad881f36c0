// The output of another process, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "probe/deadline.h"
#include "probe/files.h"

namespace bootstrap {

// A process beside this one, in a process group of its own, so that what it starts ends with it.
class ChildOutput {
 public:
  // A program that is found in PATH. It never has our LD_PRELOAD, which would take it for a rank.
  explicit ChildOutput(const std::vector<std::string>& words);
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;
  ~ChildOutput();  // ends it

  // What it has written when it ends, or until the deadline, or 64 KiB.
  const std::string& read(Deadline deadline);

 private:
  bool read_some();

  pid_t process_ = -1;
  Descriptor output_;
  std::string text_;
};

}  // namespace bootstrap
