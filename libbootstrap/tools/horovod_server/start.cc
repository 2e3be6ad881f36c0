// Starts the server at which Horovod's ranks meet, from the process that is going to be rank 0.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "core/util/text.h"
#include "probe/file_permissions.h"

namespace bootstrap {
namespace {

constexpr int kListener = 3;  // where the program expects it, and the names of the hosts
constexpr int kHosts = 4;

bool put_in_place(int from, int place) {
  if (from == place) return ::fcntl(place, F_SETFD, 0) == 0;
  return ::dup2(from, place) == place;
}

// Between fork and exec nothing but system calls: the caller may have threads, and a lock of theirs is never released
// here. Descriptors above the two places; `failed` is closed by exec.
[[noreturn]] void become_server(const int (&files)[4], char* const* arguments, const sigset_t* no_signals) {
  const auto [program, listener, hosts, failed] = files;
  char* const environment[] = {nullptr};
  const bool is_there = put_in_place(listener, kListener) && (hosts < 0 || put_in_place(hosts, kHosts));
  if (is_there && ::sigprocmask(SIG_SETMASK, no_signals, nullptr) == 0) ::fexecve(program, arguments, environment);
  const int error = errno;
  (void)!::write(failed, &error, sizeof error);
  ::_exit(127);
}

void wait_for(pid_t child) {
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}

// A copy that is not in the way of what is put in its place.
Descriptor above_places(int file) { return Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, kHosts + 1)); }

// In memory, since a pipe may hold less than all names.
Descriptor file_of(const std::string& text) {
  const Descriptor file(::memfd_create("hosts", MFD_CLOEXEC));
  if (!file.is_open()) return {};
  const auto count = ::write(file.get(), text.data(), text.size());
  if (count < 0 || static_cast<std::size_t>(count) != text.size() || ::lseek(file.get(), 0, SEEK_SET) != 0) return {};
  return above_places(file.get());
}

struct Pipe {
  Descriptor out;
  Descriptor in;
};

std::optional<Pipe> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const Descriptor out(ends[0]);
  const Descriptor in(ends[1]);
  Pipe pipe{above_places(out.get()), above_places(in.get())};
  if (!pipe.out.is_open() || !pipe.in.is_open()) return std::nullopt;
  return pipe;
}

// 0 when the server runs, else why it does not.
int read_error(const Pipe& pipe) {
  int error = 0;
  ssize_t count = -1;
  do {
    count = ::read(pipe.out.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno;
  return count == sizeof error ? error : 0;
}

}  // namespace

Result<Descriptor> open_program(const std::string& program) {
  const auto cannot = [&](std::string_view why) {
    return fail(ErrorCode::kUnavailable, cat({program, " cannot be started: ", why}));
  };
  Descriptor file(::open(program.c_str(), O_PATH | O_CLOEXEC));
  if (!file.is_open() || !may_access(program, X_OK)) return cannot(std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return cannot(std::strerror(errno));
  // Whoever can change it would run code as any user.
  if (const auto reason = distrust_of_writers(status); !reason.empty()) return cannot(reason);
  return file;
}

std::string hosts_of_ranks(const StepFacts& facts, const Settings& settings, const StepPlan& plan) {
  const bool is_made_of_name = settings.address.value.find('%') != std::string::npos;
  if (!is_made_of_name || plan.is_kept("MASTER_ADDR")) return {};
  std::string names;
  for (const auto& host : facts.layout.hosts()) {
    names.append(host).append("\n");
    const auto on_fabric = fill_address(settings.address.value, host);
    if (on_fabric != host) names.append(on_fabric).append("\n");
  }
  return names;
}

Status start_server(const ServerStart& start) {
  const auto cannot = [&](int error) {
    return fail(ErrorCode::kUnavailable, cat({start.program, " cannot be started: ", std::strerror(error)}));
  };
  std::vector<std::string> words{start.program,
                                 "--step",
                                 start.step,
                                 "--size",
                                 std::to_string(start.ranks),
                                 "--while-process",
                                 std::to_string(start.while_process)};
  if (!start.hosts.empty()) words.insert(words.end(), {"--hosts", std::to_string(kHosts)});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto program = above_places(start.program_file);
  const auto listener = above_places(start.listener);
  const auto hosts = start.hosts.empty() ? Descriptor() : file_of(start.hosts);
  auto pipe = open_pipe();
  if (!program.is_open() || !listener.is_open() || !pipe || (!start.hosts.empty() && !hosts.is_open())) {
    return cannot(errno);
  }
  const int files[] = {program.get(), listener.get(), hosts.get(), pipe->in.get()};
  sigset_t no_signals;
  ::sigemptyset(&no_signals);

  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t server = ::fork();
    if (server == 0) become_server(files, arguments.data(), &no_signals);
    const int error = errno;
    if (server < 0) (void)!::write(pipe->in.get(), &error, sizeof error);
    ::_exit(0);
  }
  if (child < 0) return cannot(errno);
  pipe->in.reset();
  wait_for(child);
  if (const int error = read_error(*pipe); error != 0) return cannot(error);
  return {};
}

}  // namespace bootstrap
