// What the texts of /proc say about a process: pure functions, so that tests can give them any text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bootstrap {

// /proc/PID/stat.
struct ProcStat {
  std::string name;  // at most 15 bytes; any byte
  char state = '?';
  std::uint64_t parent = 0;
  std::uint64_t ticks = 0;  // of CPU, user and system
};
std::optional<ProcStat> parse_stat(std::string_view text);

// The number behind "VmRSS:", "voluntary_ctxt_switches:"; 0 where there is none.
std::uint64_t status_number(std::string_view status, std::string_view name);
std::string status_word(std::string_view status, std::string_view name);

// Of an environment with NUL between its entries; the first entry counts, as for getenv(3).
std::string variable_in(std::string_view environ, std::string_view name);

// What /proc/PID/maps shows of libraries.
struct MappedLibraries {
  std::string framework;     // "PyTorch"; empty: none that is known
  std::string nccl_file;     // device and inode
  std::string nccl_version;  // from the path, "2.24.3"; empty: it names none
  std::uint64_t nccl_address = 0;
};
MappedLibraries parse_maps(std::string_view maps);

// TCP sockets of some processes, as ports of this host and of others.
struct TcpPorts {
  std::set<std::uint64_t> listens;
  std::set<std::uint64_t> tries;                                     // remote ports that have not answered
  std::vector<std::pair<std::uint64_t, std::uint64_t>> established;  // own port and remote port
};
// Of /proc/PID/net/tcp or tcp6, the lines whose socket has one of these inodes.
void parse_tcp(std::string_view text, const std::set<std::uint64_t>& inodes, TcpPorts& ports);

// "futex", "poll", "file system (request_wait_answer)"; the kernel's own name where it is not known; empty for "0".
std::string describe_wchan(std::string_view wchan);
bool is_file_system_wait(std::string_view wchan);

// The build id (NT_GNU_BUILD_ID) in the first bytes of a 64-bit ELF file; empty: there is none.
std::string build_id_in(std::string_view elf);

}  // namespace bootstrap
