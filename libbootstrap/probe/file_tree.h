// The small files of /proc and /sys below a root of a test's choice. Every answer is empty for what is not there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/cpu_set.h"

namespace bootstrap {

class FileTree {
 public:
  explicit FileTree(std::string root) : root_(std::move(root)) {}

  std::string read(std::string_view path) const;  // without the newlines at its end; empty beyond 128 KiB
  CpuSet read_cpus(std::string_view path) const;
  std::vector<std::string> names_in(std::string_view path) const;
  std::string link_name(std::string_view path) const;  // the last part of where a symbolic link points to

 private:
  std::string root_;
};

}  // namespace bootstrap
