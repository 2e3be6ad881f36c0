// What the texts of /proc say about a process: pure functions, so that tests can give them any text.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/proc_text.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/util/text.h"

namespace bootstrap {
namespace {

struct Known {
  std::string_view prefix;
  std::string_view name;
};

// Files that only a program of this framework maps. The first one that is found counts: PyTorch may map MPI, too.
constexpr auto kFrameworks = std::to_array<Known>({
    {"libtorch_cpu.so", "PyTorch"},
    {"libtorch.so", "PyTorch"},
    {"xla_extension.so", "JAX"},
    {"libjax", "JAX"},
    {"_jax.", "JAX"},
    {"libtensorflow", "TensorFlow"},
    {"libpaddle", "Paddle"},
    {"libmpi.so", "MPI"},
    {"libmpi_", "MPI"},
    {"libmpich.so", "MPI"},
    {"libnccl.so", "NCCL"},
    {"librccl.so", "RCCL"},
    {"libnvshmem", "NVSHMEM"},
});

// Prefixes of kernel functions in which a thread waits. Names differ between kernels: poll_schedule_timeout until 5.x,
// do_sys_poll or do_poll with inlining.
constexpr auto kWaits = std::to_array<Known>({
    {"futex", "futex"},
    {"do_futex", "futex"},
    {"poll_schedule", "poll"},
    {"do_poll", "poll"},
    {"do_sys_poll", "poll"},
    {"do_select", "poll"},
    {"core_sys_select", "poll"},
    {"ep_poll", "poll"},
    {"do_epoll", "poll"},
    {"hrtimer_nanosleep", "sleep"},
    {"do_nanosleep", "sleep"},
    {"common_nsleep", "sleep"},
    {"clock_nanosleep", "sleep"},
    {"pipe_read", "read of a pipe"},
    {"anon_pipe_read", "read of a pipe"},
    {"pipe_wait", "read of a pipe"},
    {"pipe_write", "write to a pipe"},
    {"anon_pipe_write", "write to a pipe"},
    {"n_tty_read", "read of a terminal"},
    {"tty_read", "read of a terminal"},
    {"do_wait", "wait for a child"},
    {"inet_csk_accept", "accept"},
    {"inet_csk_wait_for_connect", "accept"},
    {"sk_wait_data", "socket"},
    {"sk_stream_wait", "socket"},
    {"inet_stream_connect", "connect"},
    {"inet_wait_for_connect", "connect"},
    {"unix_stream", "local socket"},
    {"skb_wait", "local socket"},
    {"flock", "file lock"},
    {"posix_lock", "file lock"},
    {"do_sigtimedwait", "signal"},
    {"sigsuspend", "signal"},
    {"do_signal_stop", "stop"},
    {"do_msgrcv", "message queue"},
    {"do_semtimedop", "semaphore"},
});

// Of FUSE, NFS, SunRPC, Lustre, BeeGFS, GPFS, Ceph, page cache and block layer.
constexpr auto kFileSystems = std::to_array<std::string_view>({"request_wait_answer",
                                                               "fuse_",
                                                               "__fuse",
                                                               "nfs",
                                                               "rpc_wait",
                                                               "rpc_",
                                                               "ptlrpc",
                                                               "ldlm",
                                                               "cl_sync",
                                                               "ll_",
                                                               "osc_",
                                                               "obd_",
                                                               "lustre",
                                                               "beegfs",
                                                               "FhgfsOps",
                                                               "cxiWait",
                                                               "mmfs",
                                                               "ceph",
                                                               "folio_wait",
                                                               "wait_on_page",
                                                               "wait_on_buffer",
                                                               "io_schedule",
                                                               "blk_",
                                                               "jbd2",
                                                               "xfs_",
                                                               "ext4_",
                                                               "btrfs_",
                                                               "autofs"});

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "2.24.3" behind the last "nccl" of the path: of libnccl.so.2.24.3, nccl-2.24.3/lib/libnccl.so.2.
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

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const auto word : split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

template <class Header>
bool copy_header(std::string_view elf, std::uint64_t offset, Header& header) {
  if (offset > elf.size() || elf.size() - offset < sizeof header) return false;
  std::memcpy(&header, elf.data() + offset, sizeof header);
  return true;
}

std::string build_id_in_notes(std::string_view notes) {
  constexpr auto kPadded = [](std::size_t size) { return (size + 3) & ~std::size_t{3}; };
  for (Elf64_Nhdr note{}; copy_header(notes, 0, note);) {
    notes.remove_prefix(sizeof note);
    const auto name_size = kPadded(note.n_namesz);
    const auto size = kPadded(note.n_descsz);
    if (name_size > notes.size() || size > notes.size() - name_size) return "";
    if (note.n_type == NT_GNU_BUILD_ID && notes.starts_with(std::string_view(ELF_NOTE_GNU))) {
      std::string id;
      for (const char byte : notes.substr(name_size, std::min<std::size_t>(note.n_descsz, 32))) {
        id += to_hex(static_cast<unsigned char>(byte), 2);
      }
      return id;
    }
    notes.remove_prefix(name_size + size);
  }
  return "";
}

}  // namespace

std::optional<ProcStat> parse_stat(std::string_view text) {
  // proc(5): the name is in parentheses and may hold any byte, also ')'.
  constexpr std::size_t kParent = 1;
  constexpr std::size_t kUserTicks = 11;
  constexpr std::size_t kSystemTicks = 12;
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  const auto fields = words_of(text.substr(close + 1));
  if (fields.size() <= kSystemTicks) return std::nullopt;
  return ProcStat{
      .name = std::string(text.substr(open + 1, close - open - 1)),
      .state = fields[0].front(),
      .parent = parse_unsigned(fields[kParent]).value_or(0),
      .ticks = parse_unsigned(fields[kUserTicks]).value_or(0) + parse_unsigned(fields[kSystemTicks]).value_or(0)};
}

std::string status_word(std::string_view status, std::string_view name) {
  for (const auto line : split(status, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto words = words_of(replaced(line.substr(name.size()), "\t", " "));
    return words.empty() ? "" : std::string(words.front());
  }
  return "";
}

std::uint64_t status_number(std::string_view status, std::string_view name) {
  return parse_unsigned(status_word(status, name)).value_or(0);
}

std::string variable_in(std::string_view environ, std::string_view name) {
  for (const auto entry : split(environ, '\0')) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
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
    const auto name = base_name(last);
    for (std::size_t i = 0; i < best; ++i) {
      if (name.starts_with(kFrameworks[i].prefix)) best = i;
    }
    if (!name.starts_with("libnccl.so") || !found.nccl_file.empty()) continue;
    const auto words = words_of(line.substr(0, slash));
    if (words.size() < 5) continue;
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

bool is_file_system_wait(std::string_view wchan) {
  return std::any_of(kFileSystems.begin(), kFileSystems.end(),
                     [&](std::string_view prefix) { return wchan.starts_with(prefix); });
}

std::string describe_wchan(std::string_view wchan) {
  if (wchan.empty() || wchan == "0") return "";
  if (is_file_system_wait(wchan)) return cat({"file system (", wchan, ")"});
  for (const auto& known : kWaits) {
    if (wchan.starts_with(known.prefix) || wchan.starts_with(cat({"__", known.prefix}))) return std::string(known.name);
  }
  return std::string(wchan.substr(0, 40));
}

std::string build_id_in(std::string_view elf) {
  Elf64_Ehdr header{};
  if (!copy_header(elf, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "";
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!copy_header(elf, header.e_phoff + i * sizeof part, part)) return "";
    if (part.p_type != PT_NOTE || part.p_offset > elf.size()) continue;
    auto id = build_id_in_notes(elf.substr(part.p_offset, part.p_filesz));
    if (!id.empty()) return id;
  }
  return "";
}

}  // namespace bootstrap
