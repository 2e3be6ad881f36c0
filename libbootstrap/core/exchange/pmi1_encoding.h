// Bytes as PMI-1 can carry them: several values of printable characters, each below its limit of 1,024.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

inline constexpr std::size_t kMaxPmiValue = 1024;  // PMI_MAX_VAL_LEN of Slurm, with the terminating NUL

// The first piece says how many there are: "2:aGVsbG8...". Never empty.
std::vector<std::string> to_pmi_pieces(std::string_view bytes);

// How many pieces there are, by the first one.
std::optional<std::size_t> count_pmi_pieces(std::string_view first);

std::optional<std::string> from_pmi_pieces(const std::vector<std::string>& pieces);

}  // namespace bootstrap
