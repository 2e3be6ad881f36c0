// Reads the texts of /proc, and finds the ranks among processes: pure functions, for tests.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/parse_proc.h"
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/program/program.h"
#include "core/program/program_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// A name, and the beginnings of files or kernel functions that it stands for, separated by blanks.
struct NamedPrefixes {
  std::string_view name;
  std::string_view prefixes;
};

// Files that only a program of this framework maps. The first framework that is found counts: PyTorch may map MPI, too.
constexpr auto kFrameworks = std::to_array<NamedPrefixes>({
    {"PyTorch", "libtorch_cpu.so libtorch.so"},
    {"JAX", "xla_extension.so libjax _jax."},
    {"TensorFlow", "libtensorflow"},
    {"Paddle", "libpaddle"},
    {"MPI", "libmpi.so libmpi_ libmpich.so"},
    {"NCCL", "libnccl.so"},
    {"RCCL", "librccl.so"},
    {"NVSHMEM", "libnvshmem"},
});

// Kernel functions in which a thread waits. Names differ between kernels: poll_schedule_timeout until 5.x, do_sys_poll
// or do_poll with inlining. The file systems are FUSE, NFS, SunRPC, Lustre, BeeGFS, GPFS, Ceph, page cache and block
// layer.
constexpr std::string_view kFileSystem = "file system";
constexpr auto kWaits = std::to_array<NamedPrefixes>({
    {kFileSystem,
     "request_wait_answer fuse_ nfs rpc_ ptlrpc ldlm cl_sync ll_ osc_ obd_ lustre beegfs FhgfsOps cxiWait mmfs ceph "
     "folio_wait wait_on_page wait_on_buffer io_schedule blk_ jbd2 xfs_ ext4_ btrfs_ autofs"},
    {"futex", "futex do_futex"},
    {"poll", "poll_schedule do_poll do_sys_poll do_select core_sys_select ep_poll do_epoll"},
    {"sleep", "hrtimer_nanosleep do_nanosleep common_nsleep clock_nanosleep"},
    {"read of a pipe", "pipe_read anon_pipe_read pipe_wait"},
    {"write to a pipe", "pipe_write anon_pipe_write"},
    {"read of a terminal", "n_tty_read tty_read"},
    {"wait for a child", "do_wait"},
    {"accept", "inet_csk_accept inet_csk_wait_for_connect"},
    {"socket", "sk_wait_data sk_stream_wait"},
    {"connect", "inet_stream_connect inet_wait_for_connect"},
    {"local socket", "unix_stream skb_wait"},
    {"file lock", "flock posix_lock"},
    {"signal", "do_sigtimedwait sigsuspend"},
    {"stop", "do_signal_stop"},
    {"message queue", "do_msgrcv"},
    {"semaphore", "do_semtimedop"},
});

// The place of the row that has the beginning of `text`; the size of the table where none has.
std::size_t find_row(const auto& table, std::string_view text) {
  const auto row = std::find_if(table.begin(), table.end(), [text](const NamedPrefixes& named) {
    const auto prefixes = split(named.prefixes, ' ');
    return std::any_of(prefixes.begin(), prefixes.end(), [text](auto prefix) { return text.starts_with(prefix); });
  });
  return static_cast<std::size_t>(row - table.begin());
}

// "2.24.3" of libnccl.so.2.24.3 or nccl-2.24.3/lib/libnccl.so.2.
std::string version_in(std::string_view path) {
  std::string found;
  for (std::size_t at = 0; (at = path.find("2.", at)) != std::string_view::npos; ++at) {
    const auto digits = path.substr(at, path.find_first_not_of("0123456789.", at) - at);
    if (split(digits, '.').size() == 3 && !digits.ends_with('.')) found = digits;
  }
  return found;
}

// "0100007F:1F90" has the port in hexadecimal behind its colon.
std::uint64_t port_of(std::string_view address) {
  std::string digits(address.substr(address.rfind(':') + 1));
  for (auto& digit : digits) digit = static_cast<char>(digit >= 'A' && digit <= 'F' ? digit - 'A' + 'a' : digit);
  return parse_hex(digits, 0xffff).value_or(0);
}

constexpr std::size_t kNone = SIZE_MAX;

bool is_launcher(const TaskProcess& process) {
  if (is_shell(process.name) || tool_of(process.name) != Tool::kNone || is_launcher_name(process.name)) return true;
  std::vector<const char*> words{process.name.c_str()};
  if (is_launcher_process(1, words.data())) return true;
  words.clear();
  for (const auto& word : process.words) words.push_back(word.c_str());
  return is_launcher_process(static_cast<int>(words.size()), words.data());
}

std::string chain_to(std::size_t place, const std::vector<TaskProcess>& processes,
                     const std::vector<std::size_t>& parents) {
  constexpr int kMaxChain = 6;
  auto chain = processes[place].name;
  int length = 1;
  for (auto at = parents[place]; at != kNone; at = parents[at]) {
    if (++length > kMaxChain) return cat({"..., ", chain});
    chain = cat({processes[at].name, ", ", chain});
  }
  return chain;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const auto word : split(line, ' ')) {
    if (const auto text = trim(word); !text.empty()) words.push_back(text);
  }
  return words;
}

std::string status_word(std::string_view status, std::string_view name) {
  for (const auto line : split(status, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto value = trim(line.substr(name.size()));
    return std::string(value.substr(0, value.find(' ')));
  }
  return "";
}

std::uint64_t status_number(std::string_view status, std::string_view name) {
  return parse_unsigned(status_word(status, name)).value_or(0);
}

std::string variable_in(std::string_view environ, std::initializer_list<std::string_view> names) {
  const auto entries = split(environ, '\0');
  for (const auto name : names) {
    for (const auto entry : entries) {
      if (entry.size() <= name.size() || !entry.starts_with(name) || entry[name.size()] != '=') continue;
      if (const auto value = entry.substr(name.size() + 1); !value.empty()) return std::string(value);
      break;  // the first entry of a name counts, as for getenv(3)
    }
  }
  return "";
}

MappedLibraries parse_maps(std::string_view maps) {
  MappedLibraries found;
  auto best = kFrameworks.size();
  std::string_view last;
  for (const auto line : split(maps, '\n')) {
    const auto slash = line.find('/');
    if (slash == std::string_view::npos || line.substr(slash) == last) continue;
    last = line.substr(slash);
    const auto name = last.substr(last.rfind('/') + 1);
    best = std::min(best, find_row(kFrameworks, name));
    const auto words = words_of(line.substr(0, slash));
    if (!name.starts_with("libnccl.so") || !found.nccl_file.empty() || words.size() < 5) continue;
    found.nccl_file = cat({words[3], " ", words[4]});
    found.nccl_version = version_in(last);
    found.nccl_address = parse_hex(words[0].substr(0, words[0].find('-'))).value_or(0);
  }
  if (best < kFrameworks.size()) found.framework = kFrameworks[best].name;
  return found;
}

void parse_tcp(std::string_view text, const std::set<std::uint64_t>& inodes, TcpPorts& ports) {
  constexpr std::size_t kInode = 9;
  for (const auto line : split(text, '\n')) {
    const auto words = words_of(line);
    if (words.size() <= kInode || !inodes.contains(parse_unsigned(words[kInode]).value_or(0))) continue;
    // States of the kernel's include/net/tcp_states.h.
    if (words[3] == "0A") ports.listens.insert(port_of(words[1]));
    if (words[3] == "02") ports.tries.insert(port_of(words[2]));
    if (words[3] == "01") ports.established.emplace_back(port_of(words[1]), port_of(words[2]));
  }
}

std::string describe_wchan(std::string_view wchan) {
  if (wchan.empty() || wchan == "0") return "";
  const auto row = find_row(kWaits, wchan.starts_with("__") ? wchan.substr(2) : wchan);
  if (row == kWaits.size()) return std::string(wchan.substr(0, 40));
  return kWaits[row].name == kFileSystem ? cat({kFileSystem, " (", wchan, ")"}) : std::string(kWaits[row].name);
}

std::vector<RankProcesses> find_ranks(const std::vector<TaskProcess>& processes) {
  std::map<std::uint64_t, std::size_t> places;  // by pid
  std::vector<std::size_t> parents;
  std::vector<std::size_t> owners;  // the process with a rank of its own that this one belongs to; 0: the task
  std::vector<std::size_t> tops;    // those with a rank of their own
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& process = processes[i];
    const auto parent = places.find(process.parent);
    places.emplace(process.pid, i);
    parents.push_back(parent == places.end() ? kNone : parent->second);
    owners.push_back(parents[i] == kNone ? 0 : owners[parents[i]]);
    const bool has_own_rank =
        parents[i] != kNone && !process.rank.empty() && process.rank != processes[parents[i]].rank;
    if (owners[i] == 0 && has_own_rank) tops.push_back(owners[i] = i);
  }
  const bool has_workers = !tops.empty();
  if (!has_workers && !processes.empty()) tops.push_back(0);
  std::vector<RankProcesses> ranks;
  for (const auto top : tops) {
    auto& rank = ranks.emplace_back();
    std::optional<std::size_t> program;
    std::optional<std::size_t> with_framework;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      if (owners[i] != top) continue;
      rank.members.push_back(i);
      if (is_launcher(processes[i])) continue;
      if (!program) program = i;
      if (!with_framework && !processes[i].framework.empty()) with_framework = i;
    }
    rank.is_worker = has_workers;
    rank.is_launcher = !program;
    rank.main = with_framework ? *with_framework : program.value_or(rank.members.back());
    rank.chain = chain_to(rank.main, processes, parents);
  }
  return ranks;
}

}  // namespace bootstrap
