// The one PMIx session that a task may have at a time, locked among all processes of the task.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/step/step_id.h"
#include "probe/file_descriptor.h"

namespace bootstrap {

// PMIx takes all processes of a task for one client, and so must we. A socket that is bound to a name which is no file
// and goes with the process. Other users see such names, and can bind them: so a part of it is told to processes of the
// task's own user alone, and a name that another user holds is no lock.
class SessionLock {
 public:
  explicit SessionLock(const std::string& name);

  // False: another call, or another process of this task, has it.
  bool is_held() const { return is_held_; }

 private:
  Descriptor socket_;
  bool is_held_ = false;
};

// The same in all processes of a task: the step, the rank, and where the kernel put the stack of the task's first
// process (`task`), which proc(5) shows to its own user alone. Without that part where it is not shown.
std::string lock_name(const StepId& id, std::uint32_t rank, std::uint32_t task);

}  // namespace bootstrap
