// Slurm host lists: "node[001-003,7],login".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

inline constexpr std::size_t kMaxNodes = 65536;                     // Slurm's own limit
inline constexpr std::size_t kMaxNodeName = 255;                    // longer than any name DNS or the kernel knows
inline constexpr std::size_t kMaxNameBytes = std::size_t{1} << 20;  // of all names: 16,384 of 64 bytes

// Accepts what slurmctld and users write: zero padding, several brackets in a name, a suffix behind a bracket,
// and names and brackets mixed with commas, spaces or tabs. Order and duplicates are kept, as
// `scontrol show hostnames` keeps them. The empty text is the empty list. Anything malformed is refused whole, and so
// is a list of more than `most` hosts (kLimit), before it takes more memory than these.
//
// Where `scontrol show hostnames` of Slurm 22.05 would answer and this function deliberately does not answer the same
// (tests/differential/hostlist_differential.py knows these by the same names):
//   suffix       "n[1-2]-ib" is accepted, as Slurm 23.11 does; 22.05 refuses it.
//   unclosed     "n[1-2" is refused; Slurm answers "n]". So are "[" inside brackets and "]" outside of them.
//   open-range   "n[1-]" is refused; Slurm answers "n1".
//   junk         "n[1, 2]", "n[+2]" and "n[1x-2]" are refused; Slurm counts a blank, a sign and anything between a
//                range's first number and its '-' as digits, and answers "n02" for the second.
//   overflow     a bracket number above 2^64 - 1 is refused; Slurm answers 2^64 - 1.
//   crash        a range that ends at 2^64 - 1 is accepted; Slurm takes all memory and ends.
//   digits       a plain name that ends in a number above 2^64 - 1 is kept; Slurm changes it to 2^64 - 1.
//   dropped      an error in a bracket is refused wherever it is; Slurm silently leaves out the hosts that it concerns
//                where two more brackets follow: "a[x]b[1]c[1],d" is "d".
//   character    names hold letters, digits, '-', '.' and '_' only; Slurm takes any byte ("(null)" is a host to it).
//   brackets     a name with more than 8 brackets is refused.
//   long-name    names are at most kMaxNodeName bytes long; Slurm allows longer ones.
//   too-many     a list of more than kMaxNodes, or of more than kMaxNameBytes, is refused.
Result<std::vector<std::string>> parse_host_list(std::string_view text, std::size_t most = kMaxNodes);

// The other way round, for people: "node[001-003,007],login", of hosts in the order of a node list. After eight items
// "and 40 more".
std::string write_host_list(const std::vector<std::string>& hosts);

}  // namespace bootstrap
