// Reads /proc of single processes, with a bound on every size. Every call may wait in the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/proc_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <set>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxProcesses = 256;      // of a task
constexpr std::size_t kMaxThreads = 4096;       // of a process
constexpr std::size_t kMaxDescriptors = 16384;  // of a task

}  // namespace

std::string proc_path(std::uint64_t pid, std::string_view name) {
  return cat({"/proc/", std::to_string(pid), "/", name});
}

// Empty for what cannot be read.
std::string read_text(const std::string& path, std::size_t limit, off_t offset) {
  std::string text;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open() || (offset != 0 && ::lseek(file.get(), offset, SEEK_SET) != offset)) return text;
  std::array<char, 16384> buffer;
  while (text.size() < limit) {
    const auto count = ::read(file.get(), buffer.data(), std::min(buffer.size(), limit - text.size()));
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::string read_proc(std::uint64_t pid, std::string_view name, std::size_t limit) {
  return read_text(proc_path(pid, name), limit);
}

std::string read_proc_link(std::uint64_t pid, std::string_view name) {
  std::array<char, 256> target;
  const auto size = ::readlink(proc_path(pid, name).c_str(), target.data(), target.size());
  return size <= 0 ? "" : std::string(target.data(), static_cast<std::size_t>(size));
}

std::vector<std::uint64_t> numbers_in(const std::string& folder, std::size_t limit) {
  std::vector<std::uint64_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (entries == nullptr) return numbers;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own, for which glibc's readdir is safe.
  while (const auto* const entry = ::readdir(entries.get())) {
    if (const auto number = parse_unsigned(entry->d_name)) numbers.push_back(*number);
    if (numbers.size() == limit) break;
  }
  return numbers;
}

namespace {

std::vector<std::uint64_t> children_of(std::uint64_t pid) {
  std::vector<std::uint64_t> children;
  for (const auto thread : numbers_in(proc_path(pid, "task"), kMaxThreads)) {
    const auto text = read_proc(pid, cat({"task/", std::to_string(thread), "/children"}));
    for (const auto word : split(text, ' ')) {
      if (const auto child = parse_unsigned(word)) children.push_back(*child);
    }
  }
  return children;
}

std::string first_variable(const std::string& environ, std::initializer_list<std::string_view> names) {
  for (const auto name : names) {
    if (auto value = variable_in(environ, name); !value.empty()) return value;
  }
  return "";
}

// A process that writes a file is in this state for moments, one on a dead file system for good.
bool stays_in_disk_wait(std::uint64_t pid, char state) {
  constexpr int kTries = 20;
  constexpr int kPause = 10;  // milliseconds
  for (int i = 0; i < kTries && state == 'D'; ++i) {
    (void)::poll(nullptr, 0, kPause);
    state = parse_stat(read_proc(pid, "stat")).value_or(ProcStat{}).state;
  }
  return state == 'D';
}

// Slurm's own numbers are left out: all processes below a task have those of the task.
ProcessSight see_process(std::uint64_t pid, const ProcStat& stat) {
  ProcessSight process;
  process.pid = pid;
  process.parent = stat.parent;
  process.name = printable(stat.name);
  if (stat.state == 'Z' || stays_in_disk_wait(pid, stat.state)) return process;
  const auto line = read_proc(pid, "cmdline");
  for (const auto word : split(line, '\0')) process.words.emplace_back(word);
  if (!process.words.empty() && process.words.back().empty()) process.words.pop_back();
  const auto environ = read_proc(pid, "environ", kLargeText);
  process.rank = first_variable(environ, {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"});
  process.local_rank = first_variable(environ, {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"});
  process.world_size = first_variable(environ, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"});
  process.framework = parse_maps(read_proc(pid, "maps", kLargeText)).framework;
  return process;
}

std::set<std::uint64_t> sockets_of(const std::vector<std::uint64_t>& pids) {
  std::set<std::uint64_t> inodes;
  std::size_t seen = 0;
  for (const auto pid : pids) {
    for (const auto number : numbers_in(proc_path(pid, "fd"), kMaxDescriptors - seen)) {
      ++seen;
      const auto target = read_proc_link(pid, cat({"fd/", std::to_string(number)}));
      constexpr std::string_view kSocket = "socket:[";
      if (!target.starts_with(kSocket)) continue;
      inodes.insert(parse_unsigned(std::string_view(target).substr(kSocket.size(), target.size() - kSocket.size() - 1))
                        .value_or(0));
    }
    if (seen >= kMaxDescriptors) break;
  }
  inodes.erase(0);
  return inodes;
}

}  // namespace

std::vector<ProcessSight> read_process_tree(std::uint64_t root) {
  std::vector<ProcessSight> tree;
  std::vector<std::uint64_t> pids{root};
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const auto stat = parse_stat(read_proc(pids[i], "stat"));
    if (!stat) continue;
    tree.push_back(see_process(pids[i], *stat));
    for (const auto child : children_of(pids[i])) {
      if (pids.size() < kMaxProcesses) pids.push_back(child);
    }
  }
  return tree;
}

TcpPorts read_ports(const std::vector<std::uint64_t>& pids) {
  TcpPorts ports;
  const auto inodes = sockets_of(pids);
  if (inodes.empty()) return ports;
  for (const auto* const name : {"net/tcp", "net/tcp6"}) {
    parse_tcp(read_proc(pids.front(), name, kLargeText), inodes, ports);
  }
  return ports;
}

}  // namespace bootstrap
