// The first calls of NCCL and CUDA in a process. They load libraries and open devices, and may block for ever.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/first_calls.h"

#include <algorithm>
#include <chrono>

#include "comm/nccl/cuda_device.h"
#include "probe/abandonable_thread.h"

namespace bootstrap {

using Functions = Result<const nccl::Functions*>;
using Id = Result<std::shared_ptr<const MadeId>>;

Deadline end_of_own_part(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return deadline - std::min<Deadline::duration>(std::chrono::seconds(5), left / 4);
}

// What a message names must not be asked of the loader: dlopen(3) holds its lock while a library starts.
Functions prepare_nccl(const std::string& preferred, std::optional<int> device, Deadline deadline) {
  const auto work = [preferred, device]() -> Functions {
    auto nccl = nccl::load(preferred);
    if (!nccl) return nccl;
    if (device && *device < 0) (void)current_gpu();
    if (device && *device >= 0) {
      if (const auto status = use_gpu(*device); !status) return fail(status.error());
    }
    return nccl;
  };
  auto done = call_with_deadline<Functions>("the start of NCCL and the GPU on this rank", work, deadline);
  return done ? std::move(*done) : Functions(fail(done.error()));
}

Id make_unique_id(const nccl::Functions& nccl, Deadline deadline) {
  const auto work = [nccl]() -> Id {
    auto made = std::make_shared<MadeId>();
    const auto code = nccl.get_unique_id(&made->id);
    if (code == nccl::kSuccess) return std::shared_ptr<const MadeId>(std::move(made));
    return fail(ErrorCode::kUnavailable, nccl::describe(nccl, "ncclGetUniqueId", code, nullptr));
  };
  auto done = call_with_deadline<Id>("ncclGetUniqueId", work, deadline);
  return done ? std::move(*done) : Id(fail(done.error()));
}

}  // namespace bootstrap
