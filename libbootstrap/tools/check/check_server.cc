// Rank 0 in a check: listens at the rendezvous, receives the reports of the ranks, and sends all of them the result.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_connection.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMostStrangers = 64;  // connections beyond one for each rank
constexpr std::uint64_t kOwnFiles = 64;
constexpr std::size_t kLongestVersion = 32;

std::string microseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

CheckServer::~CheckServer() {
  clients_.clear();
  listeners_.clear();
  if (files_before_) (void)::setrlimit(RLIMIT_NOFILE, &*files_before_);
}

Status CheckServer::raise_file_limit() {
  const auto wanted = reports_.size() + kMostStrangers + kOwnFiles;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  const auto before = limit;
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ErrorCode::kLimit,
                cat({"rank 0 needs ", std::to_string(wanted), " open files for all ranks, but the limit is ",
                     std::to_string(limit.rlim_max), "; raise it with ulimit -n"}));
  }
  files_before_ = before;
  return {};
}

Status CheckServer::listen(std::uint16_t port) {
  auto socket = listen_on(port, true);
  if (!socket.is_open()) {
    return fail(ErrorCode::kUnavailable, errno == EADDRINUSE ? "another program uses it" : std::strerror(errno));
  }
  listeners_.push_back(std::move(socket));
  return {};
}

void CheckServer::listen_aside(std::uint16_t port) {
  auto socket = listen_on(port, false);
  if (socket.is_open()) listeners_.push_back(std::move(socket));
}

// When there are too many, the oldest connection that has not identified itself is closed.
void CheckServer::make_room() {
  if (clients_.size() < reports_.size() + kMostStrangers) return;
  const auto oldest = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) { return !client.rank; });
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
    clients_.push_back({.socket = std::move(socket)});
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

// False when the connection has ended, or is not of a rank of this step.
bool CheckServer::read_from(Client& client) {
  std::array<char, 4096> buffer;
  const auto count = ::recv(client.socket.get(), buffer.data(), buffer.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  client.received.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (const auto line = take_line(client.received)) {
    if (!take(client, *line)) return false;
  }
  return count > 0 && client.received.size() <= kMaxLine;
}

void CheckServer::serve(Deadline deadline, const std::function<bool()>& is_done) {
  while (!is_done()) {
    std::vector<pollfd> waits;
    for (const auto& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
    for (const auto& client : clients_) waits.push_back({client.socket.get(), POLLIN, 0});
    const int left = milliseconds_until(deadline);
    (void)::poll(waits.data(), waits.size(), left);
    auto wait = waits.begin() + std::ssize(listeners_);
    clients_.remove_if([&](Client& client) { return (wait++)->revents != 0 && !read_from(client); });
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[i].revents != 0) accept_from(listeners_[i]);
    }
    if (left == 0) return;
  }
}

std::vector<Rank> CheckServer::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < reports_.size(); ++rank) {
    if (!reports_[rank] && !other_versions_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void CheckServer::gather_reports(Deadline deadline) {
  serve(deadline, [this] { return missing().empty(); });
}

void CheckServer::gather_exchanges(Deadline deadline) {
  serve(deadline, [this] {
    return std::none_of(clients_.begin(), clients_.end(), [this](const Client& client) {
      return client.has_reported && reports_[*client.rank] && !reports_[*client.rank]->has_exchanged;
    });
  });
}

void CheckServer::send_to_all(std::string_view word, std::string_view body) {
  clients_.remove_if([&](const Client& client) { return client.has_reported && !send(client, word, body); });
}

void CheckServer::stop_listening() { listeners_.clear(); }

void CheckServer::disconnect(Deadline deadline) {
  clients_.remove_if([](const Client& client) { return !client.has_reported; });
  serve(deadline, [this] { return clients_.empty(); });
  clients_.clear();
}

}  // namespace bootstrap
