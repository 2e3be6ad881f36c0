// Makes the ranks of a step one Horovod world over Gloo, without horovodrun: `slurm-bootstrap run --horovod`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod/horovod_world.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "comm/exchange.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "tools/check/check_socket.h"
#include "tools/horovod/rendezvous_script.h"

namespace bootstrap {
namespace {

// Gloo's own 30 s are too short if many ranks load PyTorch from one file system.
constexpr const char* kGlooTimeout = "300";

// The other ranks receive rank 0's reason before their own deadlines.
constexpr std::chrono::seconds kTimeOfExchange(5);

// What Horovod reads of the ranks (common/gloo/gloo_context.cc). If each task sees only its own GPU, as device 0, each
// rank counts as a node of its own.
class HorovodRanks {
 public:
  explicit HorovodRanks(const OwnPlan& task) : layout_(task.facts.layout) {
    const auto own = layout_.place(task.facts.ranks_here.front());
    are_alone_ = effective_value(task.task.variables, "LOCAL_WORLD_SIZE") != std::to_string(own.local_size);
  }

  Place place(Rank rank) const {
    const auto& place = layout_.place(rank);
    return are_alone_ ? alone_place(place, static_cast<std::uint32_t>(layout_.size())) : place;
  }

  // Ranks that count as nodes must not share the scope of this name.
  std::string host(Rank rank) const {
    const auto& host = layout_.host_of(rank);
    return are_alone_ ? cat({host, "-", std::to_string(layout_.place(rank).local_rank)}) : host;
  }

  std::string slots() const {
    std::string lines;
    for (Rank rank = 0; rank < layout_.size(); ++rank) {
      const auto at = place(rank);
      lines += cat({host(rank), " ", std::to_string(at.local_rank), " ", std::to_string(at.local_size), " ",
                    std::to_string(at.cross_rank), " ", std::to_string(at.cross_size), "\n"});
    }
    return lines;
  }

 private:
  const Layout& layout_;
  bool are_alone_ = false;
};

// MPI's controller starts in its own way; a mixture of both would hang.
Status check_users_choice(const Environment& environment) {
  for (const auto* name : {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}) {
    const auto value = environment.get(name);
    if (!value || *value != "mpi") continue;
    return fail(ErrorCode::kUnsupported,
                cat({name,
                     "=mpi is set, and --horovod makes a world over Gloo; unset it, or start Horovod over MPI: "
                     "srun --mpi=pmix PROGRAM, without --horovod"}));
  }
  return {};
}

// "python3", "/opt/venv/bin/python", "python3.11": the Python that has the program's Horovod.
std::string python_of(const std::string& program) {
  const auto name = std::string_view(program).substr(program.rfind('/') + 1);
  return name.starts_with("python") ? program : "python3";
}

// The command has one thread here, so its child may call any function.
[[noreturn]] void become_server(const std::string& python, int socket) {
  (void)::setsid();
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  (void)::dup2(socket, STDIN_FILENO);
  (void)::dup2(socket, STDOUT_FILENO);
  (void)::dup2(nothing, STDERR_FILENO);
  // Our preload would treat this process as one more rank.
  (void)::unsetenv("LD_PRELOAD");
  ::execlp(python.c_str(), python.c_str(), "-c", kRendezvousScript, static_cast<char*>(nullptr));
  const auto reason = cat({"cannot run ", python, ": ", std::strerror(errno), "\n"});
  (void)!::write(STDOUT_FILENO, reason.data(), reason.size());
  ::_exit(1);
}

// Starts Horovod's own rendezvous server with the Python that starts `program`, or else with python3 of PATH. `slots`:
// a line for each rank, see _horovod_server.py. Answers with its port. The server is no child of this process, which
// may wait for its own children, and ends with it, whatever program it has become by then.
Result<std::string> start_rendezvous_server(const std::string& program, const std::string& slots, Deadline deadline) {
  const auto cannot = [](std::string_view what) {
    return fail(ErrorCode::kUnavailable,
                cat({"cannot start Horovod's rendezvous server: ", what, ": ", std::strerror(errno)}));
  };
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return cannot("socketpair");
  const Descriptor socket(ends[0]);
  Descriptor of_server(ends[1]);
  const auto process = std::to_string(::getpid());
  const auto child = ::fork();
  if (child < 0) return cannot("fork");
  if (child == 0) {
    if (::fork() == 0) become_server(python_of(program), of_server.get());
    ::_exit(0);
  }
  (void)::waitpid(child, nullptr, 0);
  of_server.reset();
  (void)send_all(socket, cat({process, "\n", slots}), deadline);  // the answer has the error
  (void)::shutdown(socket.get(), SHUT_WR);
  std::string received;
  const auto line = receive_line(socket, received, deadline);
  if (line && parse_unsigned(*line, 65535)) return *line;
  if (line) return fail(ErrorCode::kUnavailable, *line);
  if (Deadline::clock::now() < deadline) {
    return fail(ErrorCode::kUnavailable, "Horovod's rendezvous server ended before it had a port");
  }
  return fail(ErrorCode::kTimeout, "Horovod's rendezvous server did not start in time; --timeout gives it longer");
}

// The port of the server, or rank 0's reason why there is none.
Result<std::string> learn_port(Exchange& exchange, const std::optional<std::string>& mine, Deadline deadline) {
  Allgather round;
  round.purpose = "Horovod's rendezvous";
  round.is_for_step = mine.has_value();
  round.value = mine.value_or("");
  round.read = {0};
  round.deadline = deadline;
  auto result = exchange.run(round);
  if (!result) return fail(result.error());
  return std::move(result->front());
}

void set(const char* name, const std::string& value) { (void)::setenv(name, value.c_str(), 1); }
void set_if_unset(const char* name, const std::string& value) { (void)::setenv(name, value.c_str(), 0); }

}  // namespace

Status join_horovod_world(const Environment& environment, const std::vector<std::string>& program,
                          std::chrono::seconds timeout) {
  auto allowed = check_users_choice(environment);
  if (!allowed) return allowed;
  const auto deadline = Deadline::clock::now() + timeout;
  const auto task = read_own_task(environment);
  if (!task) return fail(task.error());
  const auto& layout = task->facts.layout;
  const auto rank = task->facts.ranks_here.front();
  const HorovodRanks ranks(*task);
  if (layout.size() > 1) {
    std::optional<std::string> mine;
    if (rank == 0) {
      const auto port = start_rendezvous_server(program.front(), ranks.slots(), deadline - kTimeOfExchange);
      mine = port ? *port : port.error().message;
    }
    const auto exchange = make_exchange(task->facts.id, layout, rank, environment);
    auto port = learn_port(*exchange, mine, deadline);
    if (!port) return fail(port.error());
    if (!parse_unsigned(*port, 65535)) return fail(ErrorCode::kUnavailable, rank == 0 ? *port : std::string());
    set("HOROVOD_GLOO_RENDEZVOUS_ADDR", effective_value(task->task.variables, "MASTER_ADDR"));
    set("HOROVOD_GLOO_RENDEZVOUS_PORT", *port);
  }
  const auto place = ranks.place(rank);
  set("HOROVOD_RANK", std::to_string(rank));
  set("HOROVOD_SIZE", std::to_string(layout.size()));
  set("HOROVOD_LOCAL_RANK", std::to_string(place.local_rank));
  set("HOROVOD_LOCAL_SIZE", std::to_string(place.local_size));
  set("HOROVOD_CROSS_RANK", std::to_string(place.cross_rank));
  set("HOROVOD_CROSS_SIZE", std::to_string(place.cross_size));
  set("HOROVOD_HOSTNAME", ranks.host(rank));
  set("HOROVOD_CONTROLLER", "gloo");
  set_if_unset("HOROVOD_CPU_OPERATIONS", "gloo");
  set_if_unset("HOROVOD_GLOO_TIMEOUT_SECONDS", kGlooTimeout);
  const auto interface = effective_value(task->task.variables, "GLOO_SOCKET_IFNAME");
  if (!interface.empty()) set_if_unset("HOROVOD_GLOO_IFACE", interface);
  return {};
}

}  // namespace bootstrap
