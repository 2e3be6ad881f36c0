// NCCL's RAS: asks a rank of the step what NCCL knows of all ranks. Only for `--nccl`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/status/sight.h"

namespace bootstrap {

// Why this release is not asked; empty: it is. `version`: "2.24.3"; empty: unknown.
std::string refuse_ras(std::string_view version, std::uint64_t port);

// The answer to "verbose status" of the first of these ranks that listens at its RAS port; else one sentence. Waits for
// at most four seconds and reads at most 64 KiB.
std::string ask_ras(const std::vector<RankSight>& ranks, std::string_view node);

}  // namespace bootstrap
