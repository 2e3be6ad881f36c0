// The server of Horovod's Gloo rendezvous: one thread that serves all ranks of a step, and ends with the step.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "tools/horovod_server/connection.h"
#include "tools/horovod_server/key_value_store.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr int kAcceptsInTurn = 64;          // then those who are in get their turn
constexpr milliseconds kAcceptPause{50};    // without descriptors or memory for another one
constexpr milliseconds kLifeInterval{200};  // to look after the process where nothing tells us

class Server {
 public:
  Server(int listener, const ServeOptions& options)
      : listener_(listener),
        options_(options),
        limits_(store_limits_for(options.ranks)),
        store_(limits_),
        house_{.store = store_,
               .http = {.max_body = limits_.max_value},
               .max_bytes = limits_.max_bytes,
               .read_deadline = options.read_deadline,
               .write_deadline = options.write_deadline} {
    connections_.reserve(options.max_connections);
    polled_.reserve(options.max_connections + 2);
  }

  int run();

 private:
  bool life_is_over(TimePoint now);
  void collect(TimePoint now);
  int wait(TimePoint now);
  void advance_ready(TimePoint now);
  void accept_some(TimePoint now);
  bool accept_failed(int error, TimePoint now);
  void welcome(Descriptor socket, bool is_stranger, TimePoint now);
  bool is_stranger(const Descriptor& socket, const sockaddr_in& client) const;
  void expire_late(TimePoint now);
  bool may_accept(TimePoint now) const {
    return connections_.size() < options_.max_connections && now >= accept_again_;
  }

  int listener_;
  const ServeOptions& options_;
  StoreLimits limits_;
  KeyValueStore store_;
  ConnectionHouse house_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<pollfd> polled_;  // the process, the listener, then the connections in their order
  TimePoint accept_again_{};
  TimePoint look_again_{};
  int trouble_ = 0;  // errno of what ends the server
};

int Server::run() {
  for (auto now = std::chrono::steady_clock::now(); trouble_ == 0;) {
    collect(now);
    const int error = wait(now);
    if (error != 0) return error;
    now = std::chrono::steady_clock::now();
    if (life_is_over(now)) return 0;
    // Those who sent something first: after a pause of the whole machine their deadlines may have passed, too.
    advance_ready(now);
    if ((polled_[1].revents & (POLLERR | POLLNVAL)) != 0) return EBADF;
    if (polled_[1].revents != 0) accept_some(now);
    expire_late(now);
    std::erase_if(connections_, [](const auto& connection) { return connection->is_over(); });
  }
  return trouble_;
}

bool Server::life_is_over(TimePoint now) {
  if (options_.life->descriptor() >= 0) return polled_[0].revents != 0;
  if (now < look_again_) return false;
  look_again_ = now + kLifeInterval;
  return options_.life->has_ended();
}

void Server::collect(TimePoint now) {
  polled_.clear();
  polled_.push_back({.fd = options_.life->descriptor(), .events = POLLIN, .revents = 0});
  polled_.push_back({.fd = may_accept(now) ? listener_ : -1, .events = POLLIN, .revents = 0});
  for (const auto& connection : connections_) {
    polled_.push_back({.fd = connection->descriptor(), .events = connection->events(), .revents = 0});
  }
}

// 0, or errno when going on makes no sense.
int Server::wait(TimePoint now) {
  auto until = now + std::chrono::hours(1);
  if (options_.life->descriptor() < 0) until = look_again_;
  if (accept_again_ > now) until = std::min(until, accept_again_);
  for (const auto& connection : connections_) until = std::min(until, connection->deadline());
  const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - now));
  if (::poll(polled_.data(), polled_.size(), static_cast<int>(left.count())) >= 0) return 0;
  if (errno == EINVAL || errno == EFAULT) return errno;
  // EINTR, or no memory: poll again, after a moment.
  for (auto& one : polled_) one.revents = 0;
  (void)::poll(nullptr, 0, 1);
  return 0;
}

void Server::advance_ready(TimePoint now) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (polled_[i + 2].revents == 0) continue;
    try {
      connections_[i]->advance(now);
    } catch (const std::bad_alloc&) {
      connections_[i]->abort();  // the client asks again
    }
  }
}

void Server::accept_some(TimePoint now) {
  for (int turn = 0; turn < kAcceptsInTurn && may_accept(now); ++turn) {
    sockaddr_in client{};
    socklen_t size = sizeof client;
    Descriptor socket(::accept4(listener_, reinterpret_cast<sockaddr*>(&client), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      const bool is_turned_away = is_stranger(socket, client);
      welcome(std::move(socket), is_turned_away, now);
    } else if (!accept_failed(errno, now)) {
      return;
    }
  }
}

// Whether the next one may be tried at once. accept(2): Linux passes on errors of the network, too.
bool Server::accept_failed(int error, TimePoint now) {
  switch (error) {
    case EAGAIN:
      return false;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      accept_again_ = now + kAcceptPause;
      return false;
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
      trouble_ = error;
      return false;
    default:
      return true;
  }
}

bool Server::is_stranger(const Descriptor& socket, const sockaddr_in& client) const {
  if (options_.hosts == nullptr) return false;
  sockaddr_in own{};
  socklen_t size = sizeof own;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
         !options_.hosts->admits(client, own);
}

// Most requests are complete when their connection is accepted, and answered here. Strangers are told why they are
// turned away, as long as they leave room for the ranks.
void Server::welcome(Descriptor socket, bool is_stranger, TimePoint now) {
  if (is_stranger && connections_.size() >= options_.max_connections / 2) return;
  try {
    auto connection = std::make_unique<Connection>(std::move(socket), house_, now);
    if (is_stranger) connection->turn_away(now);
    connection->advance(now);
    if (!connection->is_over()) connections_.push_back(std::move(connection));
  } catch (const std::bad_alloc&) {
    accept_again_ = now + kAcceptPause;  // what was made is gone, and the client asks again
  }
}

void Server::expire_late(TimePoint now) {
  for (const auto& connection : connections_) {
    if (connection->is_over() || connection->deadline() > now) continue;
    try {
      connection->expire(now);
    } catch (const std::bad_alloc&) {
      connection->abort();
    }
  }
}

}  // namespace

std::size_t max_connections_for(std::uint32_t ranks) {
  constexpr std::size_t kLeast = 64;
  constexpr std::size_t kMost = 2048;
  return std::min(kMost, kLeast + std::size_t{4} * ranks);
}

std::size_t serve_memory(const ServeOptions& options) { return store_limits_for(options.ranks).max_bytes; }

int serve(int listener, const ServeOptions& options) {
  // A client that is gone before it is accepted must not leave us in accept(2).
  const int flags = ::fcntl(listener, F_GETFL);
  if (flags < 0 || ::fcntl(listener, F_SETFL, flags | O_NONBLOCK) != 0) return errno;
  try {
    return Server(listener, options).run();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

}  // namespace bootstrap
