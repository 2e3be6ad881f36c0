// The first calls of NCCL and CUDA in a process. They load libraries and open devices, and may block for ever.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/nccl/nccl_library.h"
#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

// When a rank stops waiting for its own part of a call, so that it can still report to the others in time.
Deadline end_of_own_part(Deadline deadline);

// nccl::load(), then CUDA's or HIP's first calls with this device (-1: with the device that is current; nothing: none).
// In a thread of its own: a device that it makes current is not current in the caller. kTimeout at the deadline.
Result<const nccl::Functions*> prepare_nccl(const std::string& preferred, std::optional<int> device, Deadline deadline);

// The id is wiped with its last owner.
struct MadeId {
  nccl::UniqueId id{};

  MadeId() = default;
  MadeId(const MadeId&) = delete;
  MadeId& operator=(const MadeId&) = delete;
  ~MadeId() { wipe(id); }
};

// ncclGetUniqueId, until the deadline. Precondition: `nccl` has it.
Result<std::shared_ptr<const MadeId>> make_unique_id(const nccl::Functions& nccl, Deadline deadline);

}  // namespace bootstrap
