// A short-lived process of our own, for work that must not be done in the program's: this file, started as a program.
// SPDX-License-Identifier: Apache-2.0
#include "comm/process/helper_process.h"

#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "comm/process/poll_until.h"
#include "comm/process/secure_wipe.h"
#include "core/util/string_list.h"
#include "core/util/text.h"
#include "probe/file_descriptor.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxMessage = std::size_t{256} << 20;
constexpr std::chrono::milliseconds kTimeToEnd{500};  // for a helper whose other end is gone

// The command line that starts this file as a program.
struct Command {
  std::string program;
  std::vector<std::string> arguments;
};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct LoadedFiles {
  std::uintptr_t own_code;
  bool is_own_program = false;  // this code is in the program's own file, the first that is listed
  bool is_first = true;
  std::string loader = {};
};

int look_at_file(dl_phdr_info* file, std::size_t /*size*/, void* found) {
  auto& files = *static_cast<LoadedFiles*>(found);
  const auto name = base_name(file->dlpi_name);
  if (name.starts_with("ld-") || name.starts_with("ld64.")) files.loader = file->dlpi_name;
  for (int i = 0; files.is_first && i < file->dlpi_phnum; ++i) {
    const auto& part = file->dlpi_phdr[i];
    const auto begin = file->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || files.own_code < begin || files.own_code >= begin + part.p_memsz) continue;
    files.is_own_program = true;
  }
  files.is_first = false;
  return 0;
}

// From the kernel: the loader knows a library by the name that it was loaded with, which may be relative to a folder
// that the program has left.
std::string file_of(std::uintptr_t code) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  std::string file;
  char* line = nullptr;
  std::size_t size = 0;
  while (maps != nullptr && file.empty() && ::getline(&line, &size, maps) > 0) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const std::string_view text = trim(std::string_view(line, std::strcspn(line, "\n")));
    const auto first = std::from_chars(text.begin(), text.end(), begin, 16);
    if (first.ptr == text.end() || std::from_chars(first.ptr + 1, text.end(), end, 16).ec != std::errc{}) continue;
    if (code >= begin && code < end) file = text.substr(std::min(text.find('/'), text.size()));
  }
  std::free(line);
  if (maps != nullptr) (void)std::fclose(maps);
  return file;
}

// The library has an entry point (preload/helper_entry.cc), and the loader of this process can start it as a program.
Result<Command> own_command() {
  const auto own_code = reinterpret_cast<std::uintptr_t>(&own_command);
  LoadedFiles files{.own_code = own_code};
  (void)::dl_iterate_phdr(look_at_file, &files);
  if (files.is_own_program) return Command{"/proc/self/exe", {"slurm-bootstrap", kHelperArgument}};
  auto library = file_of(own_code);
  if (library.empty() || files.loader.empty()) {
    return fail(ErrorCode::kUnavailable, "the file of this library, or of its loader, is not known");
  }
  return Command{files.loader, {"slurm-bootstrap-helper", std::move(library)}};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> entries_of(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment.all()) {
    if (name != "LD_PRELOAD") entries.push_back(cat({name, "=", value}));
  }
  return entries;
}

constexpr std::size_t kStackSize = 32768;
constexpr int kShared = CLONE_VM | CLONE_VFORK;

// All that the two new processes use, since they share this process's memory until the helper is a program of its own.
struct Start {
  const char* program;
  char** arguments;
  char** entries;
  int socket;  // above kHelperSocket
  int error = 0;
  alignas(16) std::array<char, kStackSize> first_stack;
  alignas(16) std::array<char, kStackSize> second_stack;
};

// Signals as a fresh process has them, and no descriptor but the socket.
int become_helper(void* start_of_it) {
  auto& start = *static_cast<Start*>(start_of_it);
  for (int signal = 1; signal < NSIG; ++signal) (void)::signal(signal, SIG_DFL);
  for (int file = 0; file < kHelperSocket; ++file) {
    (void)::close(file);
    (void)::open("/dev/null", O_RDWR);  // takes the lowest number, which this is
  }
  (void)::dup2(start.socket, kHelperSocket);
  ::closefrom(kHelperSocket + 1);
  sigset_t none;
  (void)::sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
  (void)::execve(start.program, start.arguments, start.entries);
  start.error = errno;
  return 1;
}

// Its child is nobody's whom the program could wait for, once it has ended itself.
int start_helper(void* start_of_it) {
  auto& start = *static_cast<Start*>(start_of_it);
  if (::clone(become_helper, start.second_stack.end(), kShared | SIGCHLD, &start) < 0) start.error = errno;
  return 0;
}

// The program sees no child: one that sends no signal when it ends is found by waitpid(2) only with __WALL.
Status start(Start& start) {
  sigset_t all;
  sigset_t before;
  (void)::sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::clone(start_helper, start.first_stack.end(), kShared, &start);
  if (child < 0) start.error = errno;
  while (child > 0 && ::waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (start.error == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot start ", start.program, ": ", std::strerror(start.error)}));
}

// False at the deadline, or when the other end is gone.
bool write_all(int socket, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    const auto size = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
    const bool is_full = size < 0 && (errno == EAGAIN || errno == EINTR);
    if (size <= 0 && !(is_full && poll_until(socket, POLLOUT, deadline))) return false;
  }
  return true;
}

enum class End : std::uint8_t { kWhole, kClosed, kLate };

End read_exactly(int socket, char* to, std::size_t size, Deadline deadline) {
  while (size > 0) {
    if (!poll_until(socket, POLLIN, deadline)) return End::kLate;
    const auto got = ::recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return End::kClosed;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return End::kWhole;
}

// A message is its length and a list of strings.
bool send_list(int socket, const std::vector<std::string>& strings, Deadline deadline) {
  auto text = encode_strings(strings);
  const std::uint64_t length = text.size();
  const bool is_sent = write_all(socket, {reinterpret_cast<const char*>(&length), sizeof length}, deadline) &&
                       write_all(socket, text, deadline);
  wipe(text);
  return is_sent;
}

End receive_list(int socket, std::vector<std::string>& strings, Deadline deadline) {
  std::uint64_t length = 0;
  auto end = read_exactly(socket, reinterpret_cast<char*>(&length), sizeof length, deadline);
  if (end != End::kWhole) return end;
  if (length > kMaxMessage) return End::kClosed;
  std::string text(length, '\0');
  end = read_exactly(socket, text.data(), text.size(), deadline);
  auto read = end == End::kWhole ? decode_strings(text) : std::nullopt;
  wipe(text);
  if (end == End::kWhole && !read) return End::kClosed;
  if (read) strings = std::move(*read);
  return end;
}

// The socket stays open as long as the helper lives.
void wait_for_end(int socket, Deadline deadline) {
  char byte = 0;
  while (read_exactly(socket, &byte, 1, deadline) == End::kWhole) {
  }
}

}  // namespace

Result<std::vector<std::string>> ask_helper(const std::vector<std::string>& request, const Environment& environment,
                                            Deadline deadline) {
  // Its helper would have the rights of somebody else, and open what the environment names.
  if (::getauxval(AT_SECURE) != 0) {
    return fail(ErrorCode::kUnsupported, "a set-user-ID program cannot start a helper process");
  }
  auto command = own_command();
  if (!command) return fail(command.error());
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(ErrorCode::kUnavailable, cat({"cannot create a socket: ", std::strerror(errno)}));
  }
  const Descriptor ours(ends[0]);
  Descriptor low(ends[1]);
  // Above those that the helper opens anew: a program may have been started without a standard output.
  Descriptor theirs(::fcntl(low.get(), F_DUPFD_CLOEXEC, kHelperSocket + 1));
  low.reset();
  if (!theirs.is_open())
    return fail(ErrorCode::kUnavailable, cat({"cannot duplicate a descriptor: ", std::strerror(errno)}));
  auto entries = entries_of(environment);
  const auto arguments = pointers(command->arguments);
  const auto variables = pointers(entries);
  auto plan = std::make_unique<Start>();
  plan->program = command->program.c_str();
  plan->arguments = const_cast<char**>(arguments.data());
  plan->entries = const_cast<char**>(variables.data());
  plan->socket = theirs.get();
  if (const auto started = start(*plan); !started) return fail(started.error());
  theirs.reset();
  std::vector<std::string> answer;
  auto end = send_list(ours.get(), request, deadline) ? receive_list(ours.get(), answer, deadline) : End::kClosed;
  (void)::shutdown(ours.get(), SHUT_WR);
  wait_for_end(ours.get(), std::max(deadline, steady_clock::now()) + kTimeToEnd);
  if (end == End::kWhole) return answer;
  if (end == End::kLate) return fail(ErrorCode::kTimeout, "it did not answer before the deadline");
  return fail(ErrorCode::kMissing, "it ended without an answer");
}

namespace helper_socket {

std::optional<std::vector<std::string>> receive() {
  std::vector<std::string> request;
  if (receive_list(kHelperSocket, request, Deadline::max()) != End::kWhole) return std::nullopt;
  return request;
}

void send(const std::vector<std::string>& answer) {
  (void)::fcntl(kHelperSocket, F_SETFL, 0);
  (void)send_list(kHelperSocket, answer, Deadline::max());
}

void end_with_peer() {
  (void)::fcntl(kHelperSocket, F_SETOWN, ::getpid());
  (void)::fcntl(kHelperSocket, F_SETSIG, SIGKILL);
  (void)::fcntl(kHelperSocket, F_SETFL, O_ASYNC);
  pollfd gone{kHelperSocket, POLLIN | POLLRDHUP, 0};
  if (::poll(&gone, 1, 0) > 0) ::_exit(1);  // before the kernel looked
}

}  // namespace helper_socket

}  // namespace bootstrap
