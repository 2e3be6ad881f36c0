// Rank 0 in a check: takes the reports of all ranks, and sends them the verdict.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "core/util/text.h"
#include "probe/port_reservation.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMostStrangers = 64;  // connections beyond one for each rank
constexpr int kMostInTurn = 32;  // of a port; two ports fill the 64 places of strangers once, so each request is read
constexpr std::uint64_t kOwnFiles = 64;
constexpr std::size_t kLongestVersion = 32;

// For IPv6 and IPv4, or IPv4 where there is no IPv6. `like_servers`: with SO_REUSEADDR, as PyTorch's store, gRPC and
// NCCL's bootstrap do; else only on a port that no other socket has. On failure the reason is in errno.
Descriptor listen_on(std::uint16_t port, bool like_servers) {
  const int on = 1;
  auto socket = open_socket(SOCK_STREAM | SOCK_NONBLOCK);
  if (like_servers) (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind_everywhere(socket, port) && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

}  // namespace

CheckServer::CheckServer(CheckFindings& findings) : findings_(findings), tag_(step_tag(findings.id)) {
  findings.reports.resize(findings.layout.size());
}

CheckServer::~CheckServer() {
  if (files_before_) (void)::setrlimit(RLIMIT_NOFILE, &*files_before_);
}

Status CheckServer::raise_file_limit() {
  const auto wanted = findings_.reports.size() + kMostStrangers + kOwnFiles;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  files_before_ = limit;
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ErrorCode::kLimit,
                cat({"rank 0 needs ", std::to_string(wanted), " open files for all ranks, but the limit is ",
                     std::to_string(limit.rlim_max), "; raise it with ulimit -n"}));
  }
  return {};
}

Status CheckServer::listen(std::uint16_t port) {
  if (auto raised = raise_file_limit(); !raised) return raised;
  for (const auto number : std::set{port, side_port(findings_.id)}) {
    const bool is_main = number == port;
    auto socket = listen_on(number, is_main);
    if (socket.is_open()) {
      listeners_.push_back(std::move(socket));
    } else if (is_main) {
      findings_.port_trouble = errno == EADDRINUSE ? "another program uses it" : std::strerror(errno);
    }
  }
  return {};
}

// Accepts a limited number: strangers may connect without a pause, and the server must read its ranks, too.
void CheckServer::accept_from(const Descriptor& listener) {
  for (int taken = 0; taken < kMostInTurn; ++taken) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    // When there are too many, the oldest connection that has not identified itself is closed.
    if (clients_.size() >= findings_.reports.size() + kMostStrangers) {
      const auto oldest = std::find_if(clients_.begin(), clients_.end(), [](auto& client) { return !client.rank; });
      clients_.erase(oldest == clients_.end() ? clients_.begin() : oldest);
    }
    // Closed by us it is reset, so that no connection stays in TIME_WAIT and keeps the port from a server without
    // SO_REUSEADDR.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    clients_.push_back({{std::move(socket)}});
  }
}

// False for a line that no rank of this step sends.
bool CheckServer::take(Client& client, std::string_view line) {
  if (client.rank && line.starts_with("report ")) return take_report(client, line.substr(line.find(' ') + 1));
  const auto words = split(line, ' ');
  if (words.size() != 4 || words[0] != "hello" || words[1] != tag_) return false;
  const auto rank = parse_unsigned<Rank>(words[2], findings_.reports.size() - 1);
  if (!rank || (client.rank && client.rank != rank)) return false;
  client.rank = rank;
  client.version = printable(words[3].substr(0, kLongestVersion));
  return client.send(cat({"clock ", tag_, " ", std::to_string(wall_clock_us())}), {});
}

// The first report of a rank counts, and a second one on the same connection.
bool CheckServer::take_report(Client& client, std::string_view record) {
  auto& known = findings_.reports[*client.rank];
  if (known && !client.has_reported) return false;
  if (client.version == kVersion) {
    auto report = read_record<CheckReport>(record);
    if (!report || report->rank != *client.rank) return false;
    known = std::move(report);
  } else {
    findings_.other_versions[*client.rank] = client.version;
  }
  client.has_reported = true;
  return true;
}

// False when the connection has ended, or is not of a rank of this step.
bool CheckServer::read_from(Client& client) {
  const bool is_open = client.read_some();
  while (const auto line = client.take_line()) {
    if (!take(client, *line)) return false;
  }
  return is_open;
}

void CheckServer::serve(Deadline deadline, const std::function<bool()>& is_done) {
  while (!is_done()) {
    std::vector<pollfd> waits;
    for (const auto& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
    for (const auto& client : clients_) waits.push_back({client.socket.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
    (void)::poll(waits.data(), waits.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    auto wait = waits.begin() + std::ssize(listeners_);
    clients_.remove_if([&](Client& client) { return (wait++)->revents != 0 && !read_from(client); });
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[i].revents != 0) accept_from(listeners_[i]);
    }
    if (left <= 0) return;
  }
}

void CheckServer::gather_reports(Deadline deadline) {
  serve(deadline, [this] { return missing_ranks(findings_).empty(); });
}

void CheckServer::gather_exchanges(Deadline deadline) {
  send_to_all("exchange");
  serve(deadline, [this] {
    return std::none_of(clients_.begin(), clients_.end(), [this](const Client& client) {
      return client.has_reported && findings_.reports[*client.rank] && !findings_.reports[*client.rank]->has_exchanged;
    });
  });
}

void CheckServer::send_to_all(std::string_view line) {
  clients_.remove_if([&](const Client& client) { return client.has_reported && !client.send(line, {}); });
}

void CheckServer::send_verdict(std::string_view line, Deadline deadline) {
  listeners_.clear();
  send_to_all(line);
  clients_.remove_if([](const Client& client) { return !client.has_reported; });
  serve(deadline, [this] { return clients_.empty(); });
}

}  // namespace bootstrap
