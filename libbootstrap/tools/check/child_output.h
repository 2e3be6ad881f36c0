// Another program's standard output, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "probe/deadline.h"
#include "probe/files.h"

namespace bootstrap {

struct ChildOptions {
  bool joins_errors = false;                  // its standard error is a part of the output
  std::size_t most = 65536;                   // bytes of output that are read
  std::vector<std::string> environment = {};  // empty: that of this process, without LD_PRELOAD
};

// The program is found in PATH and runs beside this process. It never has our LD_PRELOAD, which would take it for a
// rank.
class ChildOutput {
 public:
  // No words: no program.
  explicit ChildOutput(const std::vector<std::string>& words, const ChildOptions& options = {});
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;
  ~ChildOutput();  // ends it

  bool is_started() const { return process_ > 0; }
  // What it has written when it ends, or until the deadline.
  std::string read(Deadline deadline);
  // Its exit status. Nothing where it has not ended by the deadline, or a signal ended it.
  std::optional<int> wait(Deadline deadline);

  // For callers that read by themselves.
  int descriptor() const { return output_.get(); }
  void send(int signal_number) const;

 private:
  std::size_t most_;
  pid_t process_ = -1;
  Descriptor output_;
};

}  // namespace bootstrap
