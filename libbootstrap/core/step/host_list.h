// Slurm host lists ("node[001-003,7],login") in compressed form: sized and indexed without expanding them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

// Accepts what slurmctld and users write: zero padding, several brackets in a name, a suffix behind a bracket,
// and names and brackets mixed with commas, spaces or tabs. Order and duplicates are kept, as
// `scontrol show hostnames` keeps them. Memory is proportional to the text, not to the number of hosts.
//
// Where `scontrol show hostnames` of Slurm 22.05 would answer and this class deliberately does not answer the same
// (tests/differential/hostlist_differential.py knows these by the same names):
//   suffix       "n[1-2]-ib" is accepted, as Slurm 23.11 does; 22.05 refuses it.
//   long-range   a range of more than 65,536 hosts, or a bracket of as many before another one, is accepted up to
//                kMaxHosts in all; Slurm refuses it.
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
//   long-name    names are at most kMaxNameLength bytes long; Slurm allows longer ones.
//   too-many     a list of more than kMaxHosts is refused.
class HostList {
 public:
  static constexpr std::size_t kMaxHosts = std::size_t{1} << 20;  // a text that means more is refused: kLimit
  static constexpr std::size_t kMaxNameLength = 255;  // longer than any name DNS or the kernel knows: kLimit

  // The empty text is the empty list. Anything malformed is refused whole: there is no partial result.
  static Result<HostList> parse(std::string_view text);

  std::size_t size() const;
  std::string at(std::size_t index) const;  // precondition: index < size()
  std::vector<std::string> expand() const;

 private:
  class Parser;

  struct Slice {  // of text_
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  struct Range {  // "08-10": numbers that follow each other, padded with zeros to the width of the first
    std::uint64_t last = 0;
    std::uint32_t end = 0;  // how many numbers its bracket holds up to and including this range
    std::uint32_t width = 0;
  };
  struct Bracket {
    Slice literal;  // the text before it, back to the bracket before
    std::uint32_t first_range = 0;
    std::uint32_t range_count = 0;
    std::uint32_t size = 0;
    std::uint32_t stride = 0;  // how far apart in the list are two hosts whose numbers here are neighbours
  };
  struct Pattern {  // one item of the list: brackets with their literals, then a suffix; or the suffix alone
    Slice suffix;
    std::uint32_t first_bracket = 0;
    std::uint32_t bracket_count = 0;
    std::uint32_t end = 0;  // how many hosts the list holds up to and including this item
  };

  std::string_view view(Slice slice) const { return std::string_view(text_).substr(slice.begin, slice.size); }
  void append_brackets(const Pattern& pattern, std::size_t count, std::size_t index, std::string& name) const;

  std::string text_;
  std::vector<Range> ranges_;
  std::vector<Bracket> brackets_;
  std::vector<Pattern> patterns_;
};

}  // namespace bootstrap
