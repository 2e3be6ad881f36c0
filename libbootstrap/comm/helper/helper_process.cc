// A helper process, for work that must not run in the program. It executes the file that contains this code.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper/helper_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/util/text.h"
#include "probe/secrets.h"

// clone(2) by a name that ThreadSanitizer does not intercept: it would take the call for a fork, but memory is shared.
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier): the name is glibc's.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxMessage = std::size_t{1} << 36;  // 64 KiB of each of 1,048,576 ranks

constexpr std::size_t kFirstRead = 4096;

// The signal at the end of the rank. No program sends the last signal number by chance.
constexpr int kPeerIsGone = 64;

// How this code starts as a program: the library has an entry point (comm/helper/helper.cc), and the loader of this
// process can run it.
struct OwnProgram {
  std::string program;
  std::vector<std::string> arguments;
};

// The file that has this code, as the kernel names it: the loader's name may be relative to a folder that the program
// has left. After an upgrade of the library this is the new file, whose helper understands the first request. Empty if
// another user could have put that file there.
// `maps`: /proc/self/maps.
std::string file_of(std::uintptr_t code, std::string_view maps) {
  for (const auto line : split(maps, '\n')) {
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
  Dl_info facts{};
  void* file = nullptr;
  const bool is_known = ::dladdr1(own_code, &facts, &file, RTLD_DL_LINKMAP) != 0;
  // The loader has a name for each file except the program's own.
  if (is_known && *static_cast<const link_map*>(file)->l_name == '\0') {
    return OwnProgram{"/proc/self/exe", {"slurm-bootstrap", kHelperArgument}};
  }
  const Descriptor file_of_maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const auto maps = read_whole(file_of_maps.get(), std::size_t{64} << 20).value_or("");
  auto library = file_of(reinterpret_cast<std::uintptr_t>(own_code), maps);
  // Without a base the loader itself was started as the program, or the program is static and has no loader.
  const auto base_of_loader = ::getauxval(AT_BASE);
  const auto own_name = FileTree("").link_name("/proc/self/exe");
  const bool is_loader = own_name.starts_with("ld-") || own_name.starts_with("ld64.");
  auto loader = base_of_loader != 0 ? file_of(base_of_loader, maps) : is_loader ? "/proc/self/exe" : "";
  if (library.empty() || loader.empty()) {
    return fail(ErrorCode::kUnavailable, "the file of this library, or of its loader, is not known");
  }
  if (!may_access(library, R_OK)) {
    return fail(ErrorCode::kUnavailable, "the file of libbootstrap was deleted after the program had loaded it");
  }
  return OwnProgram{std::move(loader), {"slurm-bootstrap-helper", std::move(library)}};
}

std::vector<std::string> entries_of(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment.all()) {
    if (name != "LD_PRELOAD") entries.push_back(cat({name, "=", value}));
  }
  return entries;
}

constexpr std::size_t kStackSize = 32768;

// For functions that may return after the caller's thread-local variables are gone.
#define BOOTSTRAP_BARE __attribute__((no_stack_protector, no_sanitize_thread))

tl::unexpected<Error> no_answer() { return fail(ErrorCode::kUnavailable, "it ended without an answer"); }

// Reads what the other end has sent, at most `most` bytes. Returns the number of bytes.
Result<std::size_t> read_some(int socket, char* to, std::size_t most, Deadline deadline) {
  while (true) {
    if (deadline != Deadline::max() && !poll_until(socket, POLLIN, deadline)) {
      return fail(ErrorCode::kTimeout, "it did not answer before the deadline");
    }
    const auto got = ::recv(socket, to, most, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return no_answer();
    return static_cast<std::size_t>(got);
  }
}

// A message is its length and a list of strings.
bool send_list(int socket, const std::vector<std::string>& strings, Deadline deadline) {
  auto list = encode_strings(strings);
  const std::uint64_t length = list.size();
  auto text = cat({{reinterpret_cast<const char*>(&length), sizeof length}, list});
  wipe(list);
  const bool is_sent = send_all(socket, text, deadline);
  wipe(text);
  return is_sent;
}

// Each answer follows a request, so the bytes read belong to one message. Most messages fit into the first read.
Result<std::vector<std::string>> receive_list(int socket, Deadline deadline) {
  std::string text(kFirstRead, '\0');
  std::uint64_t length = 0;
  for (std::size_t have = 0; have < sizeof length || have < sizeof length + length;) {
    const auto got = read_some(socket, text.data() + have, text.size() - have, deadline);
    have += got.value_or(0);
    const bool has_length = have >= sizeof length;
    if (has_length) std::memcpy(&length, text.data(), sizeof length);
    if (!got || length > kMaxMessage) {
      wipe(text);
      return got ? no_answer() : fail(got.error());
    }
    if (!has_length || text.size() >= sizeof length + length) continue;
    std::string whole(sizeof length + length, '\0');
    std::memcpy(whole.data(), text.data(), have);
    wipe(text);
    text = std::move(whole);
  }
  auto strings = decode_strings(std::string_view(text).substr(sizeof length, length));
  wipe(text);
  if (!strings) return no_answer();
  return std::move(*strings);
}

}  // namespace

// The data of the new thread and the two new processes, which share this process's memory until the helper runs its
// program.
struct HelperProcess::Start {
  Start(OwnProgram own, const Environment& environment, Descriptor of_helper)
      : path(std::move(own.program)),
        arguments(std::move(own.arguments)),
        entries(entries_of(environment)),
        socket(std::move(of_helper)) {}

  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> entries;
  std::vector<char*> argument_list = pointers_to(arguments);
  std::vector<char*> entry_list = pointers_to(entries);
  Descriptor socket;  // of the helper
  const pid_t program = ::getpid();
  // The two processes share this process's memory. Under valgrind, whose library has that name, they get a copy:
  // valgrind would stop all threads until the guard ends.
  const int flags = ::dlsym(RTLD_DEFAULT, "_vgnU_freeres") == nullptr ? CLONE_VM | CLONE_VFORK : 0;
  pid_t guard = 0;
  int error = 0;
  int status = 0;      // of the helper, from wait(2)
  int is_settled = 0;  // 1: the helper runs its program, or cannot. This and the next: __atomic functions only
  int thread = 1;      // 0: it has ended
  alignas(16) std::array<char, kStackSize> stacks[3];

  // Sleeps until the kernel reports that `value` has changed, or until the deadline.
  static void wait_while(const int& value, int unwanted, Deadline deadline) {
    while (__atomic_load_n(&value, __ATOMIC_SEQ_CST) == unwanted) {
      const auto left = deadline - steady_clock::now();
      if (left.count() <= 0) return;
      const auto nanoseconds = std::chrono::nanoseconds(left).count();
      const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
      (void)::syscall(SYS_futex, &value, FUTEX_WAIT, unwanted, &time, nullptr, 0);
    }
  }
  BOOTSTRAP_BARE void settle() {
    __atomic_store_n(&is_settled, 1, __ATOMIC_SEQ_CST);
    (void)::syscall(SYS_futex, &is_settled, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  // No signal to the program's processes ends the helper: it must outlive its rank, and then leave the server.
  BOOTSTRAP_BARE static int become_helper(void* start_of_it) {
    auto& start = *static_cast<Start*>(start_of_it);
    for (int signal = 1; signal < NSIG; ++signal) (void)::signal(signal, SIG_DFL);
    if (::prctl(PR_SET_PDEATHSIG, kPeerIsGone) != 0 || ::getppid() != start.guard) return 1;
    (void)::execve(start.path.c_str(), start.argument_list.data(), start.entry_list.data());
    start.error = errno;
    return 1;
  }

  // The guard is the helper's parent, without the program's descriptors. Without a guard the helper would become a
  // child of the program, if that is process 1 of a container or a subreaper (prctl(2)). The guard ends with the
  // program, and that signals the helper, even if a child of the program still has the socket.
  BOOTSTRAP_BARE static int guard_helper(void* start_of_it) {
    auto& start = *static_cast<Start*>(start_of_it);
    start.guard = ::getpid();
    for (int file = 0; file < kHelperSocket; ++file) {
      (void)::close(file);
      (void)::open("/dev/null", O_RDWR);  // gets the lowest number, which is free now
    }
    const bool is_ready = ::dup2(start.socket.get(), kHelperSocket) >= 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (!is_ready) start.error = errno;
    ::closefrom(kHelperSocket + 1);
    if (!is_ready || ::getppid() != start.program) return 0;
    const pid_t helper = ::__clone(become_helper, start.stacks[2].end(), start.flags | SIGCHLD, &start);
    if (helper < 0) start.error = errno;
    ::closefrom(0);
    start.settle();
    if (helper > 0) (void)::syscall(SYS_wait4, helper, &start.status, 0, nullptr);
    return 0;
  }

  // Runs in a thread of its own: the kernel stops it until the guard has ended. The program does not see the guard:
  // waitpid(2) finds a child that sends no signal only with __WALL.
  BOOTSTRAP_BARE static int wait_for_guard(void* start_of_it) {
    auto& start = *static_cast<Start*>(start_of_it);
    const pid_t process = ::__clone(guard_helper, start.stacks[1].end(), start.flags, &start);
    if (process < 0) start.error = errno;
    if (process > 0) (void)::syscall(SYS_wait4, process, nullptr, __WALL, nullptr);
    start.settle();
    return 0;
  }

  // The C library does not know this thread: else a program whose main thread ends by pthread_exit(3) would not end.
  // The thread and both processes use the caller's thread-local variables, so the caller waits until they are done.
  // `own`: this process's end of the connection.
  bool run(const Descriptor& own) {
    constexpr int kOwnThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    sigset_t all;
    sigset_t before;
    (void)::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
    if (::__clone(wait_for_guard, stacks[0].end(), kOwnThread | CLONE_CHILD_CLEARTID, this, nullptr, nullptr, &thread) <
        0) {
      error = errno;
      thread = 0;
    }
    // If the processes have a copy of the memory, is_settled does not change here. Then the first message shows that
    // the helper runs its program.
    pollfd begun{own.get(), POLLIN, 0};
    while (error == 0 && __atomic_load_n(&is_settled, __ATOMIC_SEQ_CST) == 0 && ::poll(&begun, 1, 0) <= 0) {
      wait_while(is_settled, 0, steady_clock::now() + std::chrono::milliseconds(50));
    }
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    socket.reset();  // from now on the connection ends with the helper
    return error == 0;
  }

  bool has_ended(Deadline deadline) {
    wait_while(thread, 1, deadline);
    return __atomic_load_n(&thread, __ATOMIC_SEQ_CST) == 0;
  }

  std::string describe_failure() const {
    if (error != 0) return cat({"cannot start ", path, ": ", std::strerror(error)});
    return cat({path, " ended with ",
                WIFSIGNALED(status) ? cat({"signal ", std::to_string(WTERMSIG(status))})
                                    : cat({"exit code ", std::to_string(WEXITSTATUS(status))}),
                " before the helper began"});
  }
};

Result<std::unique_ptr<HelperProcess>> HelperProcess::start(const Environment& environment, Deadline deadline) {
  // The helper would open files that the caller's environment names, with the rights of another user.
  if (::getauxval(AT_SECURE) != 0) {
    return fail(ErrorCode::kUnsupported, "a set-user-ID program cannot start a helper process");
  }
  auto own = own_program();
  if (!own) return fail(own.error());
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(ErrorCode::kUnavailable, cat({"cannot create a socket: ", std::strerror(errno)}));
  }
  Descriptor ours(ends[0]);
  Descriptor low(ends[1]);
  // Above the descriptors that the guard replaces: the program may have no standard output.
  Descriptor theirs(::fcntl(low.get(), F_DUPFD_CLOEXEC, kHelperSocket + 1));
  low.reset();
  if (!theirs.is_open()) {
    return fail(ErrorCode::kUnavailable, cat({"cannot duplicate a descriptor: ", std::strerror(errno)}));
  }
  auto* const start = new Start(std::move(*own), environment, std::move(theirs));
  std::unique_ptr<HelperProcess> helper(new HelperProcess(std::move(ours), start));
  if (!start->run(helper->socket_)) return fail(ErrorCode::kUnavailable, start->describe_failure());
  const auto first = receive_list(helper->socket_.get(), deadline);
  if (first && *first == std::vector<std::string>{helper_socket::kBegun}) return helper;
  if (!first && first.error().code == ErrorCode::kTimeout)
    return fail(ErrorCode::kTimeout, "it did not begin before the deadline");
  const bool has_ended = start->has_ended(std::max(deadline, steady_clock::now()));
  return fail(ErrorCode::kUnavailable, has_ended ? start->describe_failure() : "it did not begin");
}

// shutdown(2) works even if a forked child has a copy of the socket. A thread that still waits needs its stack.
HelperProcess::~HelperProcess() {
  if (::getpid() != start_->program) return;
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  if (start_->has_ended(steady_clock::now())) delete start_;
}

Result<std::vector<std::string>> HelperProcess::ask(const std::vector<std::string>& request, Deadline deadline) {
  if (!send_list(socket_.get(), request, deadline)) return no_answer();
  return receive_list(socket_.get(), deadline);
}

bool HelperProcess::wait_for_end(Deadline deadline) {
  (void)::shutdown(socket_.get(), SHUT_WR);
  return start_->has_ended(deadline);
}

namespace helper_socket {

Result<std::vector<std::string>> receive() { return receive_list(kHelperSocket, Deadline::max()); }

void send(const std::vector<std::string>& answer) { (void)send_list(kHelperSocket, answer, Deadline::max()); }

void wait_for_end() {
  sigset_t gone;
  (void)::sigemptyset(&gone);
  (void)::sigaddset(&gone, kPeerIsGone);
  pollfd ends[] = {{::signalfd(-1, &gone, SFD_CLOEXEC), POLLIN, 0}, {kHelperSocket, POLLRDHUP, 0}};
  while (::poll(ends, 2, -1) < 0) {
  }
  (void)::shutdown(kHelperSocket, SHUT_RDWR);
}

}  // namespace helper_socket

}  // namespace bootstrap
