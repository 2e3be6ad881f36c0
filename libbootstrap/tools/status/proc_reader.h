// Reads /proc of single processes, with a bound on every size. Every call may wait in the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/status/proc_text.h"
#include "tools/status/process_tree.h"

namespace bootstrap {

inline constexpr std::size_t kSmallText = std::size_t{64} << 10;
inline constexpr std::size_t kLargeText = std::size_t{4} << 20;  // environments, maps, lists of sockets

// "/proc/12/stat".
std::string proc_path(std::uint64_t pid, std::string_view name);

// At most `limit` bytes from `offset` on; empty for what cannot be read.
std::string read_text(const std::string& path, std::size_t limit, off_t offset = 0);
std::string read_proc(std::uint64_t pid, std::string_view name, std::size_t limit = kSmallText);
std::string read_proc_link(std::uint64_t pid, std::string_view name);

// The entries of a folder that are numbers.
std::vector<std::uint64_t> numbers_in(const std::string& folder, std::size_t limit);

// The processes below this one, each behind its parent, at most 256.
std::vector<ProcessSight> read_process_tree(std::uint64_t root);

// TCP sockets of these processes, which share a network namespace.
TcpPorts read_ports(const std::vector<std::uint64_t>& pids);

}  // namespace bootstrap
