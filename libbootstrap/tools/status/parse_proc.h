// Reads the texts of /proc, and finds the ranks among processes: pure functions, for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bootstrap {

// Words between blanks and tabs.
std::vector<std::string_view> words_of(std::string_view line);

// The word behind "VmRSS:" or "Cpus_allowed_list:", and a number behind it; empty and 0 where there is none.
std::string status_word(std::string_view status, std::string_view name);
std::uint64_t status_number(std::string_view status, std::string_view name);

// The first of these names that has a value, in an environment with NUL between its entries.
std::string variable_in(std::string_view environ, std::initializer_list<std::string_view> names);

// What /proc/PID/maps shows of libraries.
struct MappedLibraries {
  std::string framework;     // "PyTorch"; empty: none that is known
  std::string nccl_file;     // device and inode
  std::string nccl_version;  // in the path, "2.24.3"; empty: it names none
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

// One process of a task.
struct TaskProcess {
  std::uint64_t pid = 0;
  std::uint64_t parent = 0;
  std::string name;
  std::vector<std::string> words;  // of its command line; empty: unknown
  std::string rank;                // in its environment, of torchrun, mpirun and others; empty: none
  std::string local_rank;
  std::string world_size;
  std::string framework;
};

// One rank: the process that does the work, and all processes that belong to it, as places in the list of processes.
struct RankProcesses {
  std::size_t main = 0;
  std::vector<std::size_t> members;  // the main process is one of them
  std::string chain;                 // names from the task down to the main process: "bash, python3"
  bool is_launcher = false;          // the main process is a shell or a launcher, as no other runs below it
  bool is_worker = false;            // a launcher gave it a rank, a local rank and a world size
};

// `processes`: the task first, each process behind its parent. One rank for each process that a launcher gave a rank of
// its own, such as a worker of torchrun; without such processes the task is the one rank. A worker of a data loader has
// the rank of its parent and belongs to it.
std::vector<RankProcesses> find_ranks(const std::vector<TaskProcess>& processes);

}  // namespace bootstrap
