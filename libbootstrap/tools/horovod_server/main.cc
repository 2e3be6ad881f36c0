// slurm-bootstrap-rendezvous: the key-value server of Horovod's Gloo rendezvous, started in a step on the node of rank
// 0. SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "tools/horovod_server/process_watch.h"
#include "tools/horovod_server/server.h"

namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace): a program of one file

constexpr int kListener = 3;
constexpr int kHosts = 4;
constexpr int kMisused = 2;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsAddresses = false;  // a sanitizer reserves terabytes
#elif defined(__has_feature)
constexpr bool kLimitsAddresses = !(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer));
#else
constexpr bool kLimitsAddresses = true;
#endif

int say(int status, std::string_view sentence) {
  (void)std::fprintf(stderr, "slurm-bootstrap-rendezvous: %s\n", std::string(sentence).c_str());
  return status;
}

struct Arguments {
  std::string step;  // read by people alone, in the list of processes
  std::uint32_t ranks = 0;
  pid_t while_process = 0;
  int hosts = -1;  // the descriptor of their names
};

std::optional<Arguments> read_arguments(int count, char** texts) {
  Arguments arguments;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = texts[i];
    const std::string_view value = texts[i + 1];
    if (name == "--step") {
      arguments.step = value;
    } else if (name == "--size") {
      arguments.ranks = static_cast<std::uint32_t>(parse_unsigned(value, kMaxRanks).value_or(0));
    } else if (name == "--while-process") {
      arguments.while_process = static_cast<pid_t>(parse_unsigned(value, INT32_MAX).value_or(0));
    } else if (name == "--hosts") {
      arguments.hosts = static_cast<int>(parse_unsigned(value, kHosts).value_or(0));
    } else {
      return std::nullopt;
    }
  }
  if (arguments.hosts >= 0 && arguments.hosts != kHosts) return std::nullopt;
  if (count % 2 == 0 || arguments.ranks == 0 || arguments.while_process == 0) return std::nullopt;
  return arguments;
}

bool is_listening(int descriptor) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value != 0;
}

// Whatever slurmstepd had open is none of ours: above all a task's output, whose reader would wait for us.
void close_from(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  const long most = std::min(::sysconf(_SC_OPEN_MAX), 1L << 16);
  for (int descriptor = first; descriptor < most; ++descriptor) ::close(descriptor);
}

void leave_output() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int descriptor = 0; descriptor < kListener; ++descriptor) {
    if (null < 0 || ::dup2(null, descriptor) < 0) ::close(descriptor);
  }
  if (null >= kListener) ::close(null);
}

// Lowers it, never raises it above what the hard limit allows; returns what holds then.
rlim_t limit(__rlimit_resource_t resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return most;
  const rlimit wanted{.rlim_cur = std::min(most, now.rlim_max), .rlim_max = std::min(most, now.rlim_max)};
  return ::setrlimit(resource, &wanted) == 0 ? wanted.rlim_cur : now.rlim_cur;
}

// Nothing that a client sends can then cost the step more than what was planned, or reach anything of the user's.
void confine(ServeOptions& options) {
  (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  (void)limit(RLIMIT_CORE, 0);
  constexpr rlim_t kOwn = 16;  // descriptors that are no connections
  const rlim_t descriptors = limit(RLIMIT_NOFILE, options.max_connections + kOwn);
  options.max_connections =
      std::min<std::size_t>(options.max_connections, descriptors > 2 * kOwn ? descriptors - kOwn : kOwn);
  // What malloc adds, and the program itself: a third more, and 128 MiB.
  constexpr rlim_t kProgram = 128U << 20;
  if (kLimitsAddresses) (void)limit(RLIMIT_AS, serve_memory(options) / 3 * 4 + kProgram);
}

// scancel --signal and srun send these to all processes of a step, for its tasks. SIGTERM and SIGKILL end us.
void ignore_signals() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM}) {
    (void)::signal(number, SIG_IGN);
  }
}

}  // namespace

int main(int count, char** texts) {
  const auto arguments = read_arguments(count, texts);
  if (!arguments || !is_listening(kListener)) {
    return say(
        kMisused,
        "Horovod's ranks meet here; slurm-bootstrap starts it in a step, with a listening socket as descriptor 3 and "
        "--step ID --size RANKS --while-process PID, and there is nothing to do with it by hand");
  }
  close_from(arguments->hosts < 0 ? kHosts : kHosts + 1);
  // What slurmstepd or the tasks wait for is left first: from here on nobody hears us.
  leave_output();
  const auto life = ProcessWatch::open(arguments->while_process);
  if (!life) return 0;  // its tasks have ended already
  ignore_signals();
  // Neither a task's working directory nor its file system shall be busy because of us.
  if (::chdir("/") != 0) return 1;
  const auto hosts = arguments->hosts < 0 ? StepHosts() : StepHosts::look_up(arguments->hosts);
  if (arguments->hosts >= 0) (void)::close(arguments->hosts);

  ServeOptions options{.ranks = arguments->ranks,
                       .life = &*life,
                       .hosts = &hosts,
                       .max_connections = max_connections_for(arguments->ranks)};
  confine(options);
  return serve(kListener, options) == 0 ? 0 : 1;
}
