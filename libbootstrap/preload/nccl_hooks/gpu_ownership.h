// Whether a rank is about to use a GPU that is not its own, and whose it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan_from_environment.h"
#include "core/step/rank_layout.h"

namespace bootstrap {

struct GpuOwnership {
  std::vector<std::uint32_t> ordinals;  // not empty; the first one is BOOTSTRAP_GPU
  std::size_t visible = 0;              // GPUs in the list of this task
  bool is_shared_list = false;          // the ranks of the node have the same list: a place in it tells whose GPU it is
};

// Nothing where the GPUs of this rank are not ours to tell.
std::optional<GpuOwnership> gpu_ownership(const TaskPlan& task);

// "rank 3 (node001, local rank 3) is about to use cuda:0, the GPU of rank 0 (...); its own is cuda:3: call ...", or
// empty when `ordinal` is one of its own.
std::string describe_wrong_gpu(const Layout& layout, Rank rank, const GpuOwnership& own, std::uint32_t ordinal);

// The same for a process that makes communicators on many GPUs at once: the first that another rank of the node has.
// A rank that is alone on its node may use them all.
std::string describe_taken_gpu(const Layout& layout, Rank rank, const GpuOwnership& own,
                               const std::vector<std::uint32_t>& ordinals);

}  // namespace bootstrap
