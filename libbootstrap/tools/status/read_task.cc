// Reads the processes of one task in /proc. A call may wait in the kernel: call it in a process that can be abandoned.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/node_look.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <set>

#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/files.h"
#include "probe/process_state.h"
#include "tools/status/parse_proc.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxText = std::size_t{4} << 20;  // environments, maps and lists of sockets are the largest
constexpr std::size_t kMaxProcesses = 256;              // of a task
constexpr std::size_t kMaxThreads = 4096;               // of a process
constexpr std::size_t kMaxDescriptors = 16384;          // of a task
constexpr std::size_t kMaxPids = 65536;
constexpr std::size_t kMaxPorts = 64;   // of each kind that are reported
constexpr std::size_t kMaxLinks = 512;  // the same
constexpr std::chrono::seconds kBetweenLooks(1);
constexpr std::uint64_t kDefaultRasPort = 28028;  // NCCL's user guide, NCCL_RAS_ADDR

std::string proc_path(std::uint64_t pid, std::string_view name) {
  return cat({"/proc/", std::to_string(pid), "/", name});
}

// Empty for what cannot be read.
std::string read_proc(std::uint64_t pid, std::string_view name, std::size_t limit = kMaxText, off_t offset = 0) {
  std::string text;
  const Descriptor file(::open(proc_path(pid, name).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open() || (offset != 0 && ::lseek(file.get(), offset, SEEK_SET) != offset)) return text;
  std::array<char, 16384> buffer;
  while (text.size() < limit) {
    const auto count = ::read(file.get(), buffer.data(), std::min(buffer.size(), limit - text.size()));
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

struct Stat {
  std::string name;
  char state = 'X';  // the process has ended
  std::uint64_t parent = 0;
  std::uint64_t ticks = 0;
};

Stat read_stat(std::uint64_t pid) {
  const auto text = read_proc(pid, "stat");
  const auto stat = parse_process_stat(text);
  if (!stat) return {};
  return {printable(stat->name), stat->state, static_cast<std::uint64_t>(stat->parent), stat->ticks};
}

// The entries of a folder that are numbers.
std::vector<std::uint64_t> numbers_in(const std::string& folder, std::size_t limit) {
  std::vector<std::uint64_t> numbers;
  for (const auto& name : FileTree("").names_in(folder)) {
    if (const auto number = parse_unsigned(name); number && numbers.size() < limit) numbers.push_back(*number);
  }
  return numbers;
}

// A process that writes a file is in this state for moments, and one on a dead file system for ever.
bool stays_in_disk_wait(std::uint64_t pid, char state) {
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kPause(10);
  for (int i = 0; i < kTries && state == 'D'; ++i) {
    sleep_for(kPause);
    state = read_stat(pid).state;
  }
  return state == 'D';
}

// Leaves Slurm's own variables out: all processes below a task have those of the task.
TaskProcess read_process(std::uint64_t pid, const Stat& stat) {
  TaskProcess process;
  process.pid = pid;
  process.parent = stat.parent;
  process.name = stat.name;
  if (stat.state == 'Z' || stays_in_disk_wait(pid, stat.state)) return process;
  const auto line = read_proc(pid, "cmdline");
  for (const auto word : split(line, '\0')) process.words.emplace_back(word);
  if (process.words.back().empty()) process.words.pop_back();
  const auto environ = read_proc(pid, "environ");
  process.rank = variable_in(environ, {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"});
  process.local_rank = variable_in(environ, {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"});
  process.world_size = variable_in(environ, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"});
  process.framework = parse_maps(read_proc(pid, "maps")).framework;
  return process;
}

// The process and all below it, each behind its parent.
std::vector<TaskProcess> read_process_tree(std::uint64_t root) {
  std::vector<TaskProcess> tree;
  std::vector<std::uint64_t> pids{root};
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const auto pid = pids[i];
    const auto stat = read_stat(pid);
    if (stat.state == 'X') continue;
    tree.push_back(read_process(pid, stat));
    for (const auto thread : numbers_in(proc_path(pid, "task"), kMaxThreads)) {
      const auto children = read_proc(pid, cat({"task/", std::to_string(thread), "/children"}));
      for (const auto word : split(children, ' ')) {
        if (const auto child = parse_unsigned(word); child && pids.size() < kMaxProcesses) pids.push_back(*child);
      }
    }
  }
  return tree;
}

// TCP sockets of these processes, which share a network namespace.
TcpPorts read_ports(const std::vector<std::uint64_t>& pids) {
  std::set<std::uint64_t> inodes;
  std::size_t left = kMaxDescriptors;
  for (const auto pid : pids) {
    for (const auto number : numbers_in(proc_path(pid, "fd"), left)) {
      --left;
      constexpr std::string_view kSocket = "socket:[";
      const auto target = link_target(proc_path(pid, cat({"fd/", std::to_string(number)})));
      if (!target.starts_with(kSocket)) continue;
      const auto inode = std::string_view(target).substr(kSocket.size(), target.size() - kSocket.size() - 1);
      if (const auto socket = parse_unsigned(inode)) inodes.insert(*socket);
    }
  }
  TcpPorts ports;
  for (const auto* const name : {"net/tcp", "net/tcp6"}) {
    if (!inodes.empty()) parse_tcp(read_proc(pids.front(), name), inodes, ports);
  }
  return ports;
}

// What changes from one look to the next.
struct Moment {
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();
  Stat stat;
  std::string status;
  std::uint64_t switches = 0;
  std::uint64_t written = 0;
  std::uint64_t core_wait = 0;  // nanoseconds
};

// Time in which threads of the process were ready to run and had no core: the second number of schedstat.
std::uint64_t read_core_wait(std::uint64_t pid) {
  std::uint64_t sum = 0;
  for (const auto thread : numbers_in(proc_path(pid, "task"), kMaxThreads)) {
    const auto text = read_proc(pid, cat({"task/", std::to_string(thread), "/schedstat"}));
    sum += parse_unsigned(split(text + " ", ' ')[1]).value_or(0);
  }
  return sum;
}

Moment read_moment(std::uint64_t pid) {
  Moment moment;
  moment.stat = read_stat(pid);
  moment.status = read_proc(pid, "status");
  moment.switches = status_number(moment.status, "voluntary_ctxt_switches:") +
                    status_number(moment.status, "nonvoluntary_ctxt_switches:");
  moment.written = status_number(read_proc(pid, "io"), "wchar:");
  moment.core_wait = read_core_wait(pid);
  return moment;
}

bool is_still(const Moment& before, const Moment& after) {
  return before.stat.state == after.stat.state && after.stat.state != 'R' && before.switches == after.switches;
}

// The descriptor of a blocked read or write, which is clearer than the kernel function.
std::string describe_call(std::uint64_t pid) {
  const auto text = read_proc(pid, "syscall");
  const auto words = split(text, ' ');
  const auto number = parse_unsigned(words.front());
  if (!number || words.size() < 2 || !words[1].starts_with("0x")) return "";
  constexpr auto kReads = std::to_array<std::uint64_t>({SYS_read, SYS_readv, SYS_recvfrom, SYS_recvmsg, SYS_pread64});
  constexpr auto kWrites = std::to_array<std::uint64_t>({SYS_write, SYS_writev, SYS_sendto, SYS_sendmsg, SYS_pwrite64});
  const bool reads = std::find(kReads.begin(), kReads.end(), *number) != kReads.end();
  if (!reads && std::find(kWrites.begin(), kWrites.end(), *number) == kWrites.end()) return "";
  const auto descriptor = parse_hex(words[1].substr(2)).value_or(UINT64_MAX);
  if (reads && descriptor == 0) return "read of standard input";
  const auto target = link_target(proc_path(pid, cat({"fd/", std::to_string(descriptor)})));
  const std::string_view what = target.starts_with("pipe:") ? "pipe" : target.starts_with("socket:") ? "socket" : "";
  return what.empty() ? "" : cat({reads ? "read of a " : "write to a ", what});
}

void add_wait(RankState& rank) {
  rank.wchan = read_proc(rank.pid, "wchan");
  if (rank.state == "R" || rank.wchan == "0") return;
  rank.waits = describe_wchan(rank.wchan);
  if (rank.waits.starts_with("file system")) return;
  if (auto call = describe_call(rank.pid); !call.empty()) rank.waits = std::move(call);
}

void add_ports(RankState& rank, const TcpPorts& own, const TcpPorts& of_task) {
  const auto first = [](const std::set<std::uint64_t>& ports) {
    std::vector<std::uint64_t> list(ports.begin(), ports.end());
    list.resize(std::min(list.size(), kMaxPorts));
    return list;
  };
  for (const auto& [local, remote] : own.established) {
    if (rank.links.size() == kMaxLinks) break;
    rank.links.push_back(cat({std::to_string(local), ":", std::to_string(remote)}));
  }
  rank.listens = first(own.listens);
  rank.task_listens = first(of_task.listens);
  rank.tries = first(own.tries);
}

std::optional<std::uint64_t> port_behind_colon(const std::string& address) {
  const auto colon = address.rfind(':');
  return colon == std::string::npos ? std::nullopt
                                    : parse_unsigned(std::string_view(address).substr(colon + 1), 0xffff);
}

void add_environment(RankState& rank) {
  const auto environ = read_proc(rank.pid, "environ");
  const auto coordinator = variable_in(environ, {"JAX_COORDINATOR_ADDRESS"});
  for (const auto& [name, port] :
       {std::pair{"MASTER_PORT", parse_unsigned(variable_in(environ, {"MASTER_PORT"}), 0xffff)},
        {"JAX_COORDINATOR_PORT", parse_unsigned(variable_in(environ, {"JAX_COORDINATOR_PORT"}), 0xffff)},
        {"JAX_COORDINATOR_ADDRESS", port_behind_colon(coordinator)}}) {
    if (port) rank.meetings.push_back(cat({name, " ", std::to_string(*port)}));
  }
  const auto ras = variable_in(environ, {"NCCL_RAS_ADDR"});
  const auto ras_port = ras.empty() ? kDefaultRasPort : port_behind_colon(ras).value_or(0);
  if (std::find(rank.listens.begin(), rank.listens.end(), ras_port) != rank.listens.end()) rank.ras_port = ras_port;
  if (rank.nccl_version.empty() && !rank.nccl_file.empty()) rank.nccl_version = variable_in(environ, {"NCCL_VERSION"});
  rank.node_tasks = variable_in(environ, {"SLURM_GTIDS"});
}

void add_libraries(RankState& rank) {
  constexpr std::size_t kPage = 4096;
  const auto found = parse_maps(read_proc(rank.pid, "maps"));
  rank.framework = found.framework;
  rank.nccl_file = found.nccl_file;
  rank.nccl_version = found.nccl_version;
  if (found.nccl_address == 0) return;
  // `map_files` would open a file of the task. Its memory has the same bytes, with the build id in the first page.
  const auto head = read_proc(rank.pid, "mem", kPage, static_cast<off_t>(found.nccl_address));
  if (!head.empty()) rank.nccl_build = to_hex(fingerprint(head), 8);
}

// Users may not read a process of slurmstepd before it has become the user's program.
std::string why_unread(std::uint64_t pid, std::string_view name) {
  const Descriptor folder(::open(proc_path(pid, "fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open() || errno == ENOENT) return "";
  if (name == "slurmstepd") return "Slurm has not started its program yet";
  return cat({"the kernel does not allow to look at it: ", std::strerror(errno)});
}

// A child that has ended, and that its parent has not waited for, is common and harmless.
std::string describe_child(const TaskProcess& child, const Moment& before, const Moment& after) {
  const auto* const what = before.stat.state != after.stat.state                ? ""
                           : after.stat.state == 'T'                            ? " is stopped (SIGSTOP)"
                           : after.stat.state == 'D' && is_still(before, after) ? " waits for a disk or file system"
                                                                                : "";
  return *what == '\0' ? "" : cat({child.name, " (pid ", std::to_string(child.pid), ")", what});
}

void add_activity(RankState& rank, const Moment& before, const Moment& after) {
  const auto since = [](std::uint64_t first, std::uint64_t last) { return last - std::min(first, last); };
  const std::chrono::duration<double> seconds = after.when - before.when;
  rank.state = std::string(1, after.stat.state);
  rank.is_still = is_still(before, after);
  rank.cpu = static_cast<std::uint64_t>(static_cast<double>(since(before.stat.ticks, after.stat.ticks)) * 100 /
                                        static_cast<double>(::sysconf(_SC_CLK_TCK)) / seconds.count());
  constexpr double kNanosecondsInPercent = 1e7;
  rank.cpu_wait = static_cast<std::uint64_t>(static_cast<double>(since(before.core_wait, after.core_wait)) /
                                             kNanosecondsInPercent / seconds.count());
  rank.written = since(before.written, after.written) >> 10;
  rank.memory = status_number(after.status, "VmRSS:");
  rank.cores = status_word(after.status, "Cpus_allowed_list:");
}

// A process that waits for a disk may have locked its memory.
bool has_memory(const RankState& rank) {
  return (rank.state != "D" || !rank.is_still) && rank.state != "Z" && rank.state != "X" && rank.unread.empty();
}

std::vector<std::uint64_t> pids_of(const std::vector<TaskProcess>& tree, const std::vector<std::size_t>& places) {
  std::vector<std::uint64_t> pids;
  pids.reserve(places.size());
  for (const auto place : places) pids.push_back(tree[place].pid);
  return pids;
}

RankState look_at_rank(const RankState& task, const RankProcesses& processes, const std::vector<TaskProcess>& tree,
                       const std::vector<Moment>& before, const TcpPorts& of_task) {
  const auto& main = tree[processes.main];
  auto rank = task;
  rank.pid = main.pid;
  rank.program = main.name;
  rank.chain = processes.chain;
  rank.is_launcher = processes.is_launcher;
  if (processes.is_worker) {
    rank.rank = parse_unsigned(main.rank, kMaxRanks - 1).value_or(task.rank);
    rank.local_rank = parse_unsigned(main.local_rank, kMaxRanks - 1).value_or(task.local_rank);
    rank.world_size = parse_unsigned(main.world_size, kMaxRanks).value_or(0);
  }
  add_activity(rank, before[processes.main], read_moment(main.pid));
  add_wait(rank);
  for (const auto place : processes.members) {
    if (place == processes.main || !rank.child.empty()) continue;
    rank.child = describe_child(tree[place], before[place], read_moment(tree[place].pid));
  }
  add_ports(rank, read_ports(pids_of(tree, processes.members)), of_task);
  if (rank.state != "Z") rank.unread = why_unread(main.pid, main.name);
  if (!has_memory(rank)) return rank;
  add_libraries(rank);
  add_environment(rank);
  return rank;
}

}  // namespace

std::string link_target(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const auto size = ::readlink(path.c_str(), target.data(), target.size());
  return size <= 0 ? "" : std::string(target.data(), static_cast<std::size_t>(size));
}

RankState task_at(const std::string& node, std::uint64_t pid, std::uint64_t rank, std::uint64_t local_rank) {
  RankState task;
  task.rank = task.task = rank;
  task.local_rank = local_rank;
  task.node = node;
  task.pid = pid;
  return task;
}

RankState look_at_main_process(RankState task) {
  const auto stat = read_stat(task.pid);
  task.program = stat.name;
  task.state = std::string(1, stat.state);
  add_wait(task);
  return task;
}

std::vector<RankState> look_at_task(const RankState& task, const std::function<void(RankState&)>& add_stack) {
  constexpr int kTries = 2;
  std::vector<RankState> ranks;
  const auto has_ended = [](const RankState& rank) { return rank.state == "X"; };
  for (int i = 0; i < kTries; ++i) {
    const auto tree = read_process_tree(task.pid);
    std::vector<Moment> before;
    std::vector<std::uint64_t> pids;
    for (const auto& process : tree) {
      before.push_back(read_moment(process.pid));
      pids.push_back(process.pid);
    }
    sleep_for(kBetweenLooks);
    const auto ports = read_ports(pids);
    ranks.clear();
    for (const auto& processes : find_ranks(tree)) ranks.push_back(look_at_rank(task, processes, tree, before, ports));
    // A shell continues after its program has ended: look again.
    if (std::none_of(ranks.begin(), ranks.end(), has_ended)) break;
  }
  std::erase_if(ranks, has_ended);
  for (auto& rank : ranks) {
    if (has_memory(rank)) add_stack(rank);
  }
  return ranks;
}

std::vector<RankState> find_tasks_by_environment(const std::string& job, const std::string& step,
                                                 const std::string& node) {
  std::vector<RankState> tasks;
  for (const auto pid : numbers_in("/proc", kMaxPids)) {
    const auto environ = read_proc(pid, "environ");
    const auto number = [&](std::string_view name) {
      return parse_unsigned(variable_in(environ, {name}), kMaxRanks - 1).value_or(0);
    };
    if (variable_in(environ, {"SLURM_TASK_PID"}) == std::to_string(pid) &&
        variable_in(environ, {"SLURM_JOB_ID"}) == job && variable_in(environ, {"SLURM_STEP_ID"}) == step &&
        variable_in(environ, {"SLURMD_NODENAME"}) == node) {
      tasks.push_back(task_at(node, pid, number("SLURM_PROCID"), number("SLURM_LOCALID")));
    }
  }
  return tasks;
}

}  // namespace bootstrap
