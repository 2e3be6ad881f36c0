// Which frameworks a step is set up for, as users name them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bootstrap {

// Each has variables of its own beside RANK, WORLD_SIZE and their kin, which are always set.
enum class Framework : std::uint8_t {
  kPytorch,
  kTorchrun,
  kAccelerate,
  kLightning,
  kTensorflow,
  kJax,
  kNvshmem,
  kNcclTests,
  kOpenmp,
};
inline constexpr std::size_t kFrameworkCount = 9;
using FrameworkFlags = std::array<bool, kFrameworkCount>;

std::string_view framework_name(Framework framework);

// "auto", "all", "none" or a list such as "torchrun,jax"; "auto,tensorflow" adds to auto.
struct FrameworkChoice {
  bool is_auto = true;     // those that cannot harm others, as far as the step is one for them
  std::uint32_t mask = 0;  // by Framework: those that were named

  bool asks_for(Framework framework) const { return ((mask >> static_cast<unsigned>(framework)) & 1U) != 0; }
  bool operator==(const FrameworkChoice&) const = default;
};

std::optional<FrameworkChoice> parse_frameworks(std::string_view text);
std::string write_frameworks(const FrameworkChoice& set);
std::string known_frameworks();  // "pytorch, torchrun, ...", for messages

}  // namespace bootstrap
