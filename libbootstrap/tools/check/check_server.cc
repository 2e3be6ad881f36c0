// Rank 0 in a check: listens at the rendezvous, receives the reports of the ranks, and sends all of them the result.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_connection.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMostRejected = 64;  // connections beyond one for each rank
constexpr std::uint64_t kOwnFiles = 64;
constexpr std::size_t kLongestVersion = 32;
constexpr std::uint64_t kFirstClient = 2;  // the numbers below it are the listeners'

std::string microseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// The limit before, or 0 where it was high enough.
Result<std::uint64_t> raise_file_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return 0;
  const auto before = limit.rlim_cur;
  limit.rlim_cur = wanted;
  if (limit.rlim_max < wanted || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ErrorCode::kLimit,
                cat({"rank 0 needs ", std::to_string(wanted), " open files for all ranks, but the limit is ",
                     std::to_string(limit.rlim_max), "; raise it with ulimit -n"}));
  }
  return before;
}

}  // namespace

CheckServer::CheckServer(std::string step_tag, std::size_t ranks, Descriptor poller)
    : step_tag_(std::move(step_tag)), poller_(std::move(poller)), next_number_(kFirstClient), reports_(ranks) {}

CheckServer::~CheckServer() {
  clients_.clear();
  listeners_.clear();
  rlimit limit{};
  if (files_before_ == 0 || !poller_.is_open() || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = files_before_;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<CheckServer> CheckServer::open(const std::string& step_tag, std::size_t ranks) {
  const auto before = raise_file_limit(ranks + kMostRejected + kOwnFiles);
  if (!before) return fail(before.error());
  CheckServer server(step_tag, ranks, Descriptor(::epoll_create1(EPOLL_CLOEXEC)));
  server.files_before_ = *before;
  if (server.poller_.is_open()) return server;
  return fail(ErrorCode::kUnavailable, cat({"rank 0 cannot wait for connections: ", std::strerror(errno)}));
}

bool CheckServer::watch(const Descriptor& socket, std::uint64_t number) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = number;
  return ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, socket.get(), &event) == 0;
}

void CheckServer::add_listener(Descriptor socket) {
  if (watch(socket, listeners_.size())) listeners_.push_back(std::move(socket));
}

Status CheckServer::listen(std::uint16_t port) {
  auto socket = listen_on(port, true);
  if (!socket.is_open()) {
    return fail(ErrorCode::kUnavailable, errno == EADDRINUSE ? "another program uses it" : std::strerror(errno));
  }
  add_listener(std::move(socket));
  return {};
}

void CheckServer::listen_aside(std::span<const std::uint16_t> ports) {
  for (const auto port : ports) {
    auto socket = listen_on(port, false);
    if (socket.is_open()) return add_listener(std::move(socket));
  }
}

// When the table is full, the oldest connection that has not identified itself is closed.
void CheckServer::make_room() {
  if (clients_.size() < reports_.size() + kMostRejected) return;
  const auto oldest =
      std::find_if(clients_.begin(), clients_.end(), [](const auto& client) { return !client.second.rank; });
  ++rejected_;
  clients_.erase(oldest == clients_.end() ? clients_.begin() : oldest);
}

void CheckServer::accept_from(const Descriptor& listener) {
  while (true) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    make_room();
    // Closed by us it is reset, so that no connection stays in TIME_WAIT and keeps the port from a server without
    // SO_REUSEADDR.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (watch(socket, next_number_)) clients_.emplace(next_number_++, Client{std::move(socket)});
  }
}

bool CheckServer::send(const Client& client, std::string_view word, std::string_view body) const {
  const auto text = write_line({step_tag_, 0, std::string(word), std::string(body)});
  return ::send(client.socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

// False for a line that no rank of this step sends.
bool CheckServer::take(Client& client, const std::string& received) {
  const auto line = read_line(received);
  if (!line || line->step_tag != step_tag_ || line->rank >= reports_.size()) return false;
  if (client.rank && client.rank != line->rank) return false;
  client.rank = line->rank;
  if (line->word == "report") return take_report(client, *line);
  client.version = printable(line->body.substr(0, kLongestVersion));
  return line->word == "clock" && send(client, "clock", microseconds_now());
}

// The first report of a rank counts, and a second one on the same connection.
bool CheckServer::take_report(Client& client, const CheckLine& line) {
  auto& known = reports_[line.rank];
  auto report = read_record<CheckReport>(line.body);
  const bool is_of_other_version = !report && !client.version.empty() && client.version != kVersion;
  if (!is_of_other_version && (!report || report->rank != line.rank)) return false;
  if (known && !client.has_reported) return false;
  if (is_of_other_version) {
    other_versions_[line.rank] = client.version;
  } else {
    known = std::move(report);
    other_versions_.erase(line.rank);
  }
  client.has_reported = true;
  return true;
}

void CheckServer::read_from(Clients::iterator at) {
  auto& client = at->second;
  std::array<char, 4096> buffer;
  const auto count = ::recv(client.socket.get(), buffer.data(), buffer.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  client.received.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  bool is_ours = true;
  while (is_ours) {
    const auto line = take_line(client.received);
    if (!line) break;
    is_ours = take(client, *line);
  }
  is_ours = is_ours && client.received.size() <= kMaxLine;
  if (!is_ours) ++rejected_;
  if (!is_ours || count <= 0) clients_.erase(at);
}

void CheckServer::serve(Deadline deadline, const std::function<bool()>& is_done) {
  std::array<epoll_event, 64> events{};
  while (!is_done()) {
    const int left = milliseconds_until(deadline);
    const int count = ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), left);
    for (int i = 0; i < count; ++i) {
      const auto number = events[static_cast<std::size_t>(i)].data.u64;
      if (number < kFirstClient) {
        accept_from(listeners_[number]);
      } else if (const auto client = clients_.find(number); client != clients_.end()) {
        read_from(client);
      }
    }
    if (left == 0) return;
  }
}

bool CheckServer::is_missing(Rank rank) const { return !reports_[rank] && !other_versions_.contains(rank); }

std::vector<Rank> CheckServer::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < reports_.size(); ++rank) {
    if (is_missing(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void CheckServer::gather_reports(Deadline deadline) {
  serve(deadline, [this] {
    for (Rank rank = 0; rank < reports_.size(); ++rank) {
      if (is_missing(rank)) return false;
    }
    return true;
  });
}

void CheckServer::gather_exchanges(Deadline deadline) {
  serve(deadline, [this] {
    return std::none_of(clients_.begin(), clients_.end(), [this](const auto& entry) {
      const auto& client = entry.second;
      return client.has_reported && reports_[*client.rank] && !reports_[*client.rank]->has_exchanged;
    });
  });
}

void CheckServer::send_to_all(std::string_view word, std::string_view body) {
  std::erase_if(clients_,
                [&](const auto& entry) { return entry.second.has_reported && !send(entry.second, word, body); });
}

void CheckServer::stop_listening() { listeners_.clear(); }

void CheckServer::disconnect(Deadline deadline) {
  std::erase_if(clients_, [](const auto& entry) { return !entry.second.has_reported; });
  serve(deadline, [this] { return clients_.empty(); });
  clients_.clear();
}

}  // namespace bootstrap
