// Slurm host lists ("node[001-003,7],login") in compressed form: sized, indexed and searched without expanding them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace bootstrap {

// Accepts what slurmctld and users write: zero padding, several brackets in a name, a suffix behind a bracket,
// and names and brackets mixed with commas. Order and duplicates are kept, as `scontrol show hostnames` keeps them.
// Memory is proportional to the text, not to the number of hosts.
class HostList {
 public:
  static constexpr std::size_t kMaxHosts = std::size_t{1} << 20;  // a text that means more is refused: kLimit

  // The empty text is the empty list. Anything malformed is refused whole: there is no partial result.
  static Result<HostList> parse(std::string_view text);

  std::size_t size() const;
  std::string at(std::size_t index) const;  // precondition: index < size()
  std::optional<std::size_t> find(std::string_view host) const;  // lowest index with exactly this name
  std::vector<std::string> expand() const;
};

// The first host alone, in time independent of the length of the list. What follows the first name is not checked.
Result<std::string> first_host(std::string_view text);

}  // namespace bootstrap
