// Horovod's own rendezvous server as a process beside rank 0.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod/rendezvous_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/util/text.h"
#include "probe/files.h"
#include "tools/horovod/rendezvous_script.h"

namespace bootstrap {
namespace {

// "python3", "/opt/venv/bin/python", "python3.11": the one that has the Horovod of the program.
std::string python_of(const std::string& program) {
  const auto name = std::string_view(program).substr(program.rfind('/') + 1);
  return name.starts_with("python") ? program : "python3";
}

// The command has one thread here, so that its child may do what it likes.
[[noreturn]] void become_server(const std::string& python, int socket) {
  (void)::setsid();
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  (void)::dup2(socket, STDIN_FILENO);
  (void)::dup2(socket, STDOUT_FILENO);
  (void)::dup2(nothing, STDERR_FILENO);
  // Ours would take this process for one more rank.
  (void)::unsetenv("LD_PRELOAD");
  ::execlp(python.c_str(), python.c_str(), "-c", kRendezvousScript, static_cast<char*>(nullptr));
  const auto reason = cat({"cannot run ", python, ": ", std::strerror(errno), "\n"});
  (void)!::write(STDOUT_FILENO, reason.data(), reason.size());
  ::_exit(1);
}

void send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const auto sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the answer says what went wrong
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// One line, or what came before the end of the output.
Result<std::string> read_line(int file, Deadline deadline) {
  std::string line;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
    pollfd wait{.fd = file, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) == 0) {
      return fail(ErrorCode::kTimeout, "Horovod's rendezvous server did not start in time; --timeout gives it longer");
    }
    std::array<char, 512> part{};
    const auto count = ::read(file, part.data(), part.size());
    if (count <= 0) return line;
    line.append(part.data(), static_cast<std::size_t>(count));
    const auto end = line.find('\n');
    if (end != std::string::npos) return line.substr(0, end);
  }
}

}  // namespace

Result<std::uint16_t> start_rendezvous_server(const std::string& program, const std::string& slots, Deadline deadline) {
  const auto cannot = [](const char* what) {
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
  send_all(socket.get(), cat({process, "\n", slots}));
  (void)::shutdown(socket.get(), SHUT_WR);
  auto line = read_line(socket.get(), deadline);
  if (!line) return fail(line.error());
  const auto port = parse_unsigned(*line, 65535);
  if (port) return static_cast<std::uint16_t>(*port);
  return fail(ErrorCode::kUnavailable,
              line->empty() ? std::string("Horovod's rendezvous server ended before it had a port") : *line);
}

}  // namespace bootstrap
