// A rendezvous server on loopback in a thread of the test, and clients of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "probe/descriptor.h"
#include "tools/horovod_server/server.h"

namespace bootstrap {

using Clock = std::chrono::steady_clock;

// A process that does nothing until it is ended: what a server watches.
class IdleProcess {
 public:
  IdleProcess() : id_(::fork()) {
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    // A signal to -1, which fork answers when it fails, would go to every process of the machine.
    if (id_ < 0) std::abort();
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;
  ~IdleProcess() {
    end();
    reap();
  }

  void end() const {
    if (!is_reaped_) ::kill(id_, SIGKILL);
  }
  void reap() {
    if (!is_reaped_) ::waitpid(id_, nullptr, 0);
    is_reaped_ = true;
  }
  pid_t id() const { return id_; }

 private:
  const pid_t id_;  // positive
  bool is_reaped_ = false;
};

class RunningServer {
 public:
  explicit RunningServer(ServeOptions options = {}, bool use_pidfd = true)
      : life_(*ProcessWatch::open(process_.id(), use_pidfd)) {
    listener_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
    EXPECT_EQ(::listen(listener_.get(), 4096), 0);
    options.life = &life_;
    thread_ = std::thread([this, options] { outcome_ = serve(listener_.get(), options); });
  }
  ~RunningServer() {
    if (!thread_.joinable()) return;
    EXPECT_EQ(end(), 0);
  }

  IdleProcess& process() { return process_; }
  // Ends the process that the server watches, and waits for the server.
  int end() {
    process_.end();
    thread_.join();
    return outcome_;
  }
  // A connection; `receive_buffer` is for clients that shall not be able to take much.
  Descriptor connect(int receive_buffer = 0) const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    return connect(std::move(socket));
  }
  Descriptor connect(Descriptor socket) const {
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) socket.reset();
    return socket;
  }

 private:
  IdleProcess process_;
  ProcessWatch life_;
  Descriptor listener_;
  sockaddr_in address_{};
  int outcome_ = -1;
  std::thread thread_;
};

inline bool send_all(const Descriptor& socket, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// What comes until the server closes; nothing when the connection was reset, or nothing comes for 20 s.
inline std::optional<std::string> read_all(const Descriptor& socket) {
  std::string all;
  char buffer[65536];
  for (;;) {
    pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20000) <= 0) return std::nullopt;
    const auto count = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (count < 0) return std::nullopt;
    if (count == 0) return all;
    all.append(buffer, static_cast<std::size_t>(count));
  }
}

inline std::string request_text(const std::string& method, const std::string& path, const std::string& body = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: n1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

// "HTTP/1.1 200 OK..." -> 200; 0: no answer.
inline int status_of(const std::optional<std::string>& answer) {
  return answer && answer->size() > 12 ? std::stoi(answer->substr(9, 3)) : 0;
}

inline std::string body_of(const std::string& answer) {
  const auto end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

inline std::optional<std::string> ask(const RunningServer& server, const std::string& text) {
  const auto socket = server.connect();
  (void)send_all(socket, text);  // it may have answered before it has read all
  return read_all(socket);
}

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

inline bool comes_true_within(std::chrono::seconds limit, const auto& condition) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace bootstrap
