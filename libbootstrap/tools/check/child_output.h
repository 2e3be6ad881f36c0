// The output of another process, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
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

// A process beside this one, in a process group of its own, so that what it starts ends with it.
class ChildOutput {
 public:
  // A program that is found in PATH. It never has our LD_PRELOAD, which would take it for a rank.
  explicit ChildOutput(const std::vector<std::string>& words, ChildOptions options = {});
  // A copy of this process that calls `work` with the descriptor of its output, and ends within `seconds`. It may wait
  // in the kernel for ever: this process goes on.
  ChildOutput(const std::function<void(int)>& work, unsigned seconds);
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;
  ~ChildOutput();  // ends it

  // What it has written when it ends, or until the deadline.
  const std::string& read(Deadline deadline);
  // Its exit status. Nothing where it has not ended by the deadline, or a signal ended it.
  std::optional<int> wait(Deadline deadline);
  void send(int signal_number) const;

  const std::string& text() const { return text_; }
  bool has_ended() const { return has_ended_; }  // its output, and all of that was read

 private:
  void start(const std::function<void(int)>& work);
  friend bool read_all(std::span<ChildOutput* const> children, Deadline deadline);
  bool read_some();

  ChildOptions options_;
  pid_t process_ = -1;
  Descriptor output_;
  std::string text_;
  bool has_ended_ = false;
};

// Reads from all until each has ended; false at the deadline.
bool read_all(std::span<ChildOutput* const> children, Deadline deadline);
bool read_all(std::deque<ChildOutput>& children, Deadline deadline);

}  // namespace bootstrap
