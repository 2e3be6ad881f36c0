// Programs that are known by their names, and the options of those that start another program in their place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace bootstrap {

// What a program that is no training program does with its task.
enum class Business : std::uint8_t {
  kRanks,    // starts ranks, and numbers them itself
  kWorkers,  // starts workers, or is one of a pool
  kOthers,   // starts other programs
  kServes,   // serves users or other programs
  kShows,    // shows what a node or its GPUs are like
  kNone,     // none of these
};

// By the name of the file, without its folder. Allocates nothing.
Business business_of(std::string_view name) noexcept;
Business business_of_module(std::string_view module) noexcept;  // of `python -m MODULE`

bool is_torchrun_module(std::string_view module) noexcept;
bool is_shell(std::string_view name) noexcept;
bool is_started_by_others(std::string_view name) noexcept;  // a shell or a launcher that a wrapper would start
bool is_interpreter(std::string_view name) noexcept;        // of another language than Python: perl, Rscript
bool is_python(std::string_view name) noexcept;             // python3, python3.11, pypy3
bool is_python_script(std::string_view name) noexcept;      // train.py

// Where the command behind a prefix is looked up.
enum class SearchPlace : std::uint8_t { kHere, kEnvironment, kContainer };

// A program that becomes another, or runs one and waits for it: `numactl --cpunodebind=0 ./train`.
struct Prefix {
  std::string_view name;
  std::string_view subcommands;  // one of these words comes next; empty: none does
  std::string_view flags;        // options without a value, separated by spaces
  std::string_view options;      // options with one
  std::uint8_t positionals = 0;  // words in front of the command: timeout's duration, a container's image
  SearchPlace lookup = SearchPlace::kHere;
  bool is_attached = false;  // all its long options carry their value behind "=", so that none need be known
};

// Null: the program is no prefix.
const Prefix* find_prefix(std::string_view name) noexcept;

bool has_word(std::string_view list, std::string_view word) noexcept;  // one of several, separated by spaces

}  // namespace bootstrap
