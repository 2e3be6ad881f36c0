// Descriptors that close with their owner, permissions of files, and small files of /proc and /sys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/util/result.h"

namespace bootstrap {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { reset(); }

  void reset() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Reads the rest of a file, and stops when it has more than `max` bytes. kUnavailable with the system's reason.
Result<std::string> read_whole(int descriptor, std::size_t max);

// Why a file cannot be trusted, as the end of a sentence, with a remedy. Empty if only root or the user of this process
// owns it and can write to it, or if it cannot be examined: the caller's open then gives the better error. Does not
// look at the folders above.
std::string distrust_of_writers(const std::string& path);

// access(2) with the effective user id (R_OK, W_OK, X_OK): in some hooks of slurmstepd that is the step's user, while
// the real one is root. The error is in errno.
bool may_access(const std::string& path, int how);

// The files below `root`: "", or a folder of a test. Every answer is empty if there is no such file.
class FileTree {
 public:
  explicit FileTree(std::string root) : root_(std::move(root)) {}

  std::string read(std::string_view path) const;  // without newlines at the end; empty beyond 128 KiB
  CpuSet read_cpus(std::string_view path) const;
  std::vector<std::string> names_in(std::string_view path) const;
  std::string link_name(std::string_view path) const;  // the last part of a symbolic link's target

 private:
  std::string root_;
};

}  // namespace bootstrap
