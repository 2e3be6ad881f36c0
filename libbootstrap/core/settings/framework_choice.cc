// Which frameworks a step is set up for, as users name them.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/framework_choice.h"

#include <algorithm>
#include <array>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::array<std::string_view, kFrameworkCount> kNames{"pytorch",   "torchrun",   "accelerate",
                                                               "lightning", "tensorflow", "jax",
                                                               "nvshmem",   "nccl-tests", "openmp"};  // by Framework
constexpr std::uint32_t kAll = (1U << kFrameworkCount) - 1;

std::string join(std::uint32_t mask, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (((mask >> i) & 1U) != 0) text += cat({text.empty() ? "" : separator, kNames[i]});
  }
  return text;
}

}  // namespace

std::string_view framework_name(Framework framework) { return kNames[static_cast<std::size_t>(framework)]; }

std::optional<FrameworkChoice> parse_frameworks(std::string_view text) {
  if (text == "auto") return FrameworkChoice{};
  if (text == "all") return FrameworkChoice{false, kAll};
  if (text == "none") return FrameworkChoice{false, 0};
  FrameworkChoice set{false, 0};
  for (const auto word : split(text, ',')) {
    if (word == "auto" && !set.is_auto) {
      set.is_auto = true;
      continue;
    }
    const auto* const found = std::find(kNames.begin(), kNames.end(), word);
    if (found == kNames.end()) return std::nullopt;
    set.mask |= 1U << static_cast<unsigned>(found - kNames.begin());
  }
  return set;
}

std::string write_frameworks(const FrameworkChoice& set) {
  if (set.is_auto) return set.mask == 0 ? "auto" : cat({"auto,", join(set.mask, ",")});
  if (set.mask == kAll) return "all";
  return set.mask == 0 ? "none" : join(set.mask, ",");
}

std::string known_frameworks() { return join(kAll, ", "); }

}  // namespace bootstrap
