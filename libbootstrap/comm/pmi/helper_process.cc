// A short-lived process for work that must not run in the program: this file, started as a program.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmi/helper_process.h"

#include <dlfcn.h>
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
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/files.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxMessage = std::size_t{256} << 20;
constexpr std::chrono::milliseconds kTimeToEnd{500};  // of a helper after its socket was shut down

// The first string of the first message: the helper has begun, and may reach a server.
constexpr const char* kBegun = "begun";

// How this code starts as a program: the library has an entry point (preload/constructor.cc), and the loader of this
// process can run it.
struct OwnProgram {
  std::string program;
  std::vector<std::string> arguments;
};

// The loader names each file but that of the program.
bool is_in_programs_file(const void* code) {
  Dl_info facts{};
  void* file = nullptr;
  return ::dladdr1(code, &facts, &file, RTLD_DL_LINKMAP) != 0 && *static_cast<const link_map*>(file)->l_name == '\0';
}

// From the kernel: the loader has the name that a library was loaded with, which may be relative to a folder that the
// program has left. After an upgrade of the library it is the new file: its helper understands the same request.
// Nothing where another user could have put that file there.
std::string file_of(std::uintptr_t code) {
  const Descriptor maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const auto text = read_whole(maps.get(), std::size_t{64} << 20).value_or("");
  for (const auto line : split(text, '\n')) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const auto first = std::from_chars(line.begin(), line.end(), begin, 16);
    if (first.ptr == line.end() || std::from_chars(first.ptr + 1, line.end(), end, 16).ec != std::errc{}) continue;
    if (code < begin || code >= end) continue;
    std::string path(line.substr(std::min(line.find('/'), line.size())));
    constexpr std::string_view kGone = " (deleted)";
    if (!path.ends_with(kGone)) return path;
    path.resize(path.size() - kGone.size());
    return may_access(path, R_OK) && !distrust_of_writers(path).empty() ? "" : path;
  }
  return {};
}

Result<OwnProgram> own_program() {
  const auto* const own_code = reinterpret_cast<const void*>(&own_program);
  if (is_in_programs_file(own_code)) return OwnProgram{"/proc/self/exe", {"slurm-bootstrap", kHelperArgument}};
  auto library = file_of(reinterpret_cast<std::uintptr_t>(own_code));
  // Without a base the loader itself was started, as a program; or the program is static, and has no loader to name.
  const auto base_of_loader = ::getauxval(AT_BASE);
  const auto own_name = FileTree("").link_name("/proc/self/exe");
  const bool is_loader = own_name.starts_with("ld-") || own_name.starts_with("ld64.");
  auto loader = base_of_loader != 0 ? file_of(base_of_loader) : is_loader ? "/proc/self/exe" : "";
  if (library.empty() || loader.empty()) {
    return fail(ErrorCode::kUnavailable, "the file of this library, or of its loader, is not known");
  }
  if (!may_access(library, R_OK)) {
    return fail(ErrorCode::kUnavailable, "the file of libbootstrap was deleted after the program had loaded it");
  }
  return OwnProgram{std::move(loader), {"slurm-bootstrap-helper", std::move(library)}};
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

// Duplicates a descriptor to a number above those that the helper opens anew: the program may have no standard output.
Descriptor lift(const Descriptor& low) { return Descriptor(::fcntl(low.get(), F_DUPFD_CLOEXEC, kHelperSocket + 1)); }

// What the two new processes use: they share this process's memory until the helper runs its program.
struct Start {
  std::vector<std::string> entries;
  std::vector<char*> argument_list;
  std::vector<char*> entry_list;
  OwnProgram own;
  std::atomic<int> socket{-1};  // of the helper; close_socket() closes the copy in this process once
  int error = 0;
  int status = 0;  // of the helper, from wait(2)
  alignas(16) std::array<char, kStackSize> first_stack;
  alignas(16) std::array<char, kStackSize> second_stack;

  ~Start() { close_socket(); }
  void close_socket() {
    if (const int own_end = socket.exchange(-1); own_end >= 0) (void)::close(own_end);
  }
};

// Signals get the defaults of a new process.
int become_helper(void* start_of_it) {
  auto& start = *static_cast<Start*>(start_of_it);
  for (int signal = 1; signal < NSIG; ++signal) (void)::signal(signal, SIG_DFL);
  sigset_t none;
  (void)::sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
  (void)::execve(start.own.program.c_str(), start.argument_list.data(), start.entry_list.data());
  start.error = errno;
  return 1;
}

// The parent of the helper while it runs, without the program's descriptors. Without this process the helper would
// become a child of the program, if that is process 1 of a container or a subreaper (prctl(2)).
int guard_helper(void* start_of_it) {
  auto& start = *static_cast<Start*>(start_of_it);
  for (int file = 0; file < kHelperSocket; ++file) {
    (void)::close(file);
    (void)::open("/dev/null", O_RDWR);  // gets the lowest number, which is free now
  }
  // After its deadline the caller has closed the socket, and the program's own descriptor may have this number.
  if (::dup2(start.socket, kHelperSocket) < 0) {
    start.error = errno;
    return 0;
  }
  ::closefrom(kHelperSocket + 1);
  const pid_t helper = ::clone(become_helper, start.second_stack.end(), kShared | SIGCHLD, &start);
  if (helper < 0) start.error = errno;
  ::closefrom(0);
  while (helper > 0 && ::waitpid(helper, &start.status, 0) < 0 && errno == EINTR) {
  }
  return 0;
}

// Runs in its own thread: the kernel stops it until the guard has ended, since both use its thread-local variables.
// The program does not see the guard: waitpid(2) finds a child that sends no signal only with __WALL.
void run_helper(Start& start) {
  const pid_t guard = ::clone(guard_helper, start.first_stack.end(), kShared, &start);
  if (guard < 0) start.error = errno;
  while (guard > 0 && ::waitpid(guard, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  start.close_socket();
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

std::string describe_failure(const Start& start) {
  if (start.error != 0) return cat({"cannot start ", start.own.program, ": ", std::strerror(start.error)});
  return cat({start.own.program, " ended with ",
              WIFSIGNALED(start.status) ? cat({"signal ", std::to_string(WTERMSIG(start.status))})
                                        : cat({"exit code ", std::to_string(WEXITSTATUS(start.status))}),
              " before the helper began"});
}

// The socket stays open until the helper ends.
void wait_for_end(int socket, Deadline deadline) {
  char byte = 0;
  while (read_exactly(socket, &byte, 1, deadline) == End::kWhole) {
  }
}

}  // namespace

Result<std::vector<std::string>> ask_helper(const std::vector<std::string>& request, const Environment& environment,
                                            Deadline deadline) {
  // Its helper would open what the caller's environment names, with the rights of another user.
  if (::getauxval(AT_SECURE) != 0) {
    return fail(ErrorCode::kUnsupported, "a set-user-ID program cannot start a helper process");
  }
  auto own = own_program();
  if (!own) return fail(own.error());
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(ErrorCode::kUnavailable, cat({"cannot create a socket: ", std::strerror(errno)}));
  }
  const Descriptor ours(ends[0]);
  auto theirs = lift(Descriptor(ends[1]));
  if (!theirs.is_open()) {
    return fail(ErrorCode::kUnavailable, cat({"cannot duplicate a descriptor: ", std::strerror(errno)}));
  }
  const auto start = std::make_shared<Start>();
  start->own = std::move(*own);
  start->entries = entries_of(environment);
  start->argument_list = pointers(start->own.arguments);
  start->entry_list = pointers(start->entries);
  start->socket = theirs.release();
  AbandonableThread thread;
  if (const auto started = thread.start([start] { run_helper(*start); }); !started) return fail(started.error());
  std::vector<std::string> answer;
  const bool is_sent = send_list(ours.get(), request, deadline);
  auto end = receive_list(ours.get(), answer, deadline);
  const bool has_begun = end == End::kWhole && answer == std::vector<std::string>{kBegun};
  start->close_socket();  // from now on the connection ends with the helper
  if (has_begun) end = is_sent ? receive_list(ours.get(), answer, deadline) : End::kClosed;
  (void)::shutdown(ours.get(), SHUT_WR);
  const auto until = std::max(deadline, steady_clock::now()) + kTimeToEnd;
  wait_for_end(ours.get(), until);
  const bool has_ended = thread.wait_until(until);
  if (end == End::kWhole && has_begun) return answer;
  if (end == End::kLate) return fail(ErrorCode::kTimeout, "it did not answer before the deadline");
  if (has_begun) return fail(ErrorCode::kMissing, "it ended without an answer");
  return fail(ErrorCode::kUnavailable, has_ended ? describe_failure(*start) : "it did not begin");
}

namespace helper_socket {

std::optional<std::vector<std::string>> receive() {
  std::vector<std::string> request;
  if (receive_list(kHelperSocket, request, Deadline::max()) != End::kWhole) return std::nullopt;
  if (!send_list(kHelperSocket, {kBegun}, Deadline::max())) return std::nullopt;
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
  if (::poll(&gone, 1, 0) > 0) ::_exit(1);  // it was gone before the fcntl
}

}  // namespace helper_socket

}  // namespace bootstrap
