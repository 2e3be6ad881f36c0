// Looks at the processes of one task through /proc. Every call may wait in the kernel: call it in a process that can be
// left.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/process_look.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "core/util/text.h"
#include "probe/files.h"
#include "tools/status/proc_reader.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxPorts = 64;  // of each kind that are reported
constexpr std::size_t kMaxLinks = 512;
constexpr int kBetweenLooks = 1000;               // milliseconds
constexpr std::uint64_t kDefaultRasPort = 28028;  // NCCL's user guide, NCCL_RAS_ADDR

// What changes from one look to the next.
struct Moment {
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();
  ProcStat stat;
  std::uint64_t switches = 0;
  std::uint64_t written = 0;
};

Moment see_moment(std::uint64_t pid) {
  Moment moment;
  moment.stat = parse_stat(read_proc(pid, "stat")).value_or(ProcStat{.name = {}, .state = 'X'});
  const auto status = read_proc(pid, "status");
  moment.switches =
      status_number(status, "voluntary_ctxt_switches:") + status_number(status, "nonvoluntary_ctxt_switches:");
  moment.written = status_number(read_proc(pid, "io"), "wchar:");
  return moment;
}

bool is_still(const Moment& before, const Moment& after) {
  return before.stat.state == after.stat.state && after.stat.state != 'R' && before.switches == after.switches;
}

// The descriptor that a blocked read or write is about tells more than the kernel function does.
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
  const auto target = read_proc_link(pid, cat({"fd/", std::to_string(descriptor)}));
  const auto* const what = target.starts_with("pipe:") ? "a pipe" : target.starts_with("socket:") ? "a socket" : "";
  return *what == '\0' ? "" : cat({reads ? "read of " : "write to ", what});
}

void add_wait(RankSight& sight, std::uint64_t pid) {
  sight.wchan = read_proc(pid, "wchan");
  if (sight.state == "R" || sight.wchan == "0") return;
  sight.waits = is_file_system_wait(sight.wchan) ? "" : describe_call(pid);
  if (sight.waits.empty()) sight.waits = describe_wchan(sight.wchan);
}

std::vector<std::uint64_t> first_of(const std::set<std::uint64_t>& ports) {
  std::vector<std::uint64_t> list(ports.begin(), ports.end());
  list.resize(std::min(list.size(), kMaxPorts));
  return list;
}

// `of_task`: sockets of all processes of the task.
void add_ports(RankSight& sight, const TcpPorts& own, const TcpPorts& of_task) {
  for (const auto& [local, remote] : own.established) {
    if (sight.links.size() < kMaxLinks) {
      sight.links.push_back(cat({std::to_string(local), ":", std::to_string(remote)}));
    }
  }
  sight.listens = first_of(own.listens);
  auto others = of_task.listens;
  for (const auto port : own.listens) others.erase(port);
  sight.task_listens = first_of(others);
  sight.tries = first_of(own.tries);
}

void add_environment(RankSight& sight, const std::string& environ) {
  for (const auto* const name : {"MASTER_PORT", "JAX_COORDINATOR_PORT"}) {
    const auto port = parse_unsigned(variable_in(environ, name), 0xffff);
    if (port) sight.meetings.push_back(cat({name, " ", std::to_string(*port)}));
  }
  const auto address = variable_in(environ, "JAX_COORDINATOR_ADDRESS");
  const auto port = parse_unsigned(std::string_view(address).substr(address.rfind(':') + 1), 0xffff);
  if (port && address.find(':') != std::string::npos) {
    sight.meetings.push_back(cat({"JAX_COORDINATOR_ADDRESS ", std::to_string(*port)}));
  }
  const auto ras = variable_in(environ, "NCCL_RAS_ADDR");
  const auto ras_port =
      ras.empty() ? kDefaultRasPort : parse_unsigned(std::string_view(ras).substr(ras.rfind(':') + 1)).value_or(0);
  if (std::find(sight.listens.begin(), sight.listens.end(), ras_port) != sight.listens.end()) sight.ras_port = ras_port;
  if (sight.nccl_version.empty() && !sight.nccl_file.empty()) {
    sight.nccl_version = printable(variable_in(environ, "NCCL_VERSION"));
  }
}

// `map_files` and `exe` would open a file of the task. Its memory has the same bytes.
std::string build_id_at(std::uint64_t pid, std::uint64_t address) {
  constexpr std::size_t kHead = 4096;
  return address == 0 ? "" : build_id_in(read_text(proc_path(pid, "mem"), kHead, static_cast<off_t>(address)));
}

void add_libraries(RankSight& sight) {
  const auto found = parse_maps(read_proc(sight.pid, "maps", kLargeText));
  sight.framework = found.framework;
  sight.nccl_file = found.nccl_file;
  sight.nccl_version = found.nccl_version;
  sight.nccl_build = build_id_at(sight.pid, found.nccl_address);
}

std::string why_unread(std::uint64_t pid) {
  const Descriptor folder(::open(proc_path(pid, "fd").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open() || errno == ENOENT) return "";
  return cat({"the kernel does not allow to look at it: ", std::strerror(errno)});
}

std::string describe_child(const ProcessSight& child, const Moment& before, const Moment& after) {
  const auto name = cat({child.name, " (pid ", std::to_string(child.pid), ")"});
  if (before.stat.state != after.stat.state) return "";
  if (after.stat.state == 'T') return cat({name, " is stopped (SIGSTOP)"});
  if (after.stat.state == 'D' && is_still(before, after)) return cat({name, " waits for a disk or file system"});
  // A child that has ended and was not waited for is common, and does no harm.
  return "";
}

void add_activity(RankSight& sight, const Moment& before, const Moment& after) {
  sight.state = std::string(1, after.stat.state);
  sight.is_still = is_still(before, after);
  const auto ticks = after.stat.ticks - std::min(after.stat.ticks, before.stat.ticks);
  const auto seconds = std::chrono::duration<double>(after.when - before.when).count();
  sight.cpu = static_cast<std::uint64_t>(static_cast<double>(ticks) * 100 /
                                         static_cast<double>(::sysconf(_SC_CLK_TCK)) / seconds);
  sight.written = (after.written - std::min(after.written, before.written)) >> 10;
  const auto status = read_proc(sight.pid, "status");
  sight.memory = status_number(status, "VmRSS:");
  sight.cores = status_word(status, "Cpus_allowed_list:");
}

// A process that waits for a disk may have locked its memory.
bool has_memory(const RankSight& sight) {
  return (sight.state != "D" || !sight.is_still) && sight.state != "Z" && sight.state != "X" && sight.unread.empty();
}

// The processes of a task, with the moment of the first look.
class SecondLook {
 public:
  SecondLook(const TaskPlace& place, std::vector<ProcessSight> tree) : place_(place), tree_(std::move(tree)) {
    for (const auto& process : tree_) before_.push_back(see_moment(process.pid));
  }

  const std::vector<ProcessSight>& tree() const { return tree_; }

  void read_task_ports() {
    std::vector<std::uint64_t> pids;
    for (const auto& process : tree_) pids.push_back(process.pid);
    if (!pids.empty()) ports_ = read_ports(pids);
  }

  RankSight see(const RankProcesses& rank) const {
    const auto& main = tree_[rank.main];
    auto sight = sight_at(place_, main.pid);
    sight.program = main.name;
    sight.chain = rank.chain;
    sight.is_launcher = rank.is_launcher;
    if (rank.is_worker) {
      sight.rank = parse_unsigned(main.rank, kMaxRanks - 1).value_or(place_.rank);
      sight.local_rank = parse_unsigned(main.local_rank, kMaxRanks - 1).value_or(place_.local_rank);
      sight.world_size = parse_unsigned(main.world_size, kMaxRanks).value_or(0);
    }
    add_activity(sight, before_[rank.main], see_moment(main.pid));
    add_wait(sight, main.pid);
    std::vector<std::uint64_t> members;
    for (const auto place : rank.members) {
      members.push_back(tree_[place].pid);
      if (place == rank.main || !sight.child.empty()) continue;
      sight.child = describe_child(tree_[place], before_[place], see_moment(tree_[place].pid));
    }
    add_ports(sight, read_ports(members), ports_);
    sight.unread = sight.state == "Z" ? "" : why_unread(main.pid);
    if (!has_memory(sight)) return sight;
    add_libraries(sight);
    add_environment(sight, read_proc(main.pid, "environ", kLargeText));
    return sight;
  }

 private:
  TaskPlace place_;
  std::vector<ProcessSight> tree_;
  std::vector<Moment> before_;
  TcpPorts ports_;
};

}  // namespace

RankSight sight_at(const TaskPlace& place, std::uint64_t pid) {
  RankSight sight;
  sight.rank = sight.task = place.rank;
  sight.local_rank = place.local_rank;
  sight.node = place.node;
  sight.pid = pid;
  return sight;
}

RankSight TaskLook::first_sight() const {
  auto sight = sight_at(place_, place_.pid);
  const auto stat = parse_stat(read_proc(place_.pid, "stat"));
  sight.program = stat ? printable(stat->name) : "";
  sight.state = stat ? std::string(1, stat->state) : "";
  add_wait(sight, place_.pid);
  return sight;
}

std::string TaskLook::ranks_of_node() const {
  return variable_in(read_proc(place_.pid, "environ", kLargeText), "SLURM_GTIDS");
}

std::vector<RankSight> TaskLook::look(const std::function<void(RankSight&)>& stack_of) const {
  constexpr int kTries = 2;
  std::vector<RankSight> sights;
  const auto is_gone = [](const RankSight& sight) { return sight.state == "X"; };
  for (int i = 0; i < kTries; ++i) {
    SecondLook look(place_, read_process_tree(place_.pid));
    (void)::poll(nullptr, 0, kBetweenLooks);
    look.read_task_ports();
    sights.clear();
    for (const auto& rank : find_ranks(look.tree())) sights.push_back(look.see(rank));
    // A shell goes on after its program has ended: look at what it does then.
    if (std::none_of(sights.begin(), sights.end(), is_gone)) break;
  }
  std::erase_if(sights, is_gone);
  for (auto& sight : sights) {
    if (has_memory(sight)) stack_of(sight);
  }
  return sights;
}

std::vector<TaskPlace> find_tasks_by_environment(const std::string& job, const std::string& step,
                                                 const std::string& node) {
  constexpr std::size_t kMaxPids = 65536;
  std::vector<TaskPlace> tasks;
  for (const auto pid : numbers_in("/proc", kMaxPids)) {
    const auto environ = read_proc(pid, "environ", kLargeText);
    if (variable_in(environ, "SLURM_TASK_PID") != std::to_string(pid) || variable_in(environ, "SLURM_JOB_ID") != job ||
        variable_in(environ, "SLURM_STEP_ID") != step || variable_in(environ, "SLURMD_NODENAME") != node) {
      continue;
    }
    tasks.push_back({.node = node,
                     .pid = pid,
                     .rank = parse_unsigned(variable_in(environ, "SLURM_PROCID"), kMaxRanks - 1).value_or(0),
                     .local_rank = parse_unsigned(variable_in(environ, "SLURM_LOCALID"), kMaxRanks - 1).value_or(0)});
  }
  return tasks;
}

}  // namespace bootstrap
