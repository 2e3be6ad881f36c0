// How the ranks of a check meet: each connects to rank 0, reports, and receives the verdict.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_meeting.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

// Below Linux' default ip_local_port_range, above our default port_range.
constexpr PortRange kSidePorts{.low = 30000, .high = 32767};
constexpr milliseconds kPatience(2000);  // for an answer; a lost packet is sent again after one
constexpr milliseconds kSidePatience(500);
constexpr milliseconds kPause(50);
constexpr milliseconds kLeastAttempt(100);  // the last one must have the time to be refused
constexpr int kClockReadings = 4;           // the quickest one counts

constexpr std::size_t kMostStrangers = 64;  // connections beyond one for each rank
constexpr int kMostInTurn = 32;  // of a port; two ports fill the place of strangers once, so each request is read
constexpr std::uint64_t kOwnFiles = 64;
constexpr std::size_t kLongestVersion = 32;

std::int64_t wall_clock_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// Reads the other side's clock. False when it is not rank 0 of this step.
bool read_clock(CheckReport& report, CheckConnection& connection, const std::string& tag, Deadline deadline) {
  const auto hello = cat({"hello ", tag, " ", std::to_string(report.rank), " ", kVersion});
  const auto start_of_answer = cat({"clock ", tag, " "});
  report.round_trip_us = UINT64_MAX;
  for (int reading = 0; reading < kClockReadings; ++reading) {
    const auto begin = wall_clock_us();
    const auto answer = connection.send(hello, deadline) ? connection.receive(deadline) : std::nullopt;
    const auto took = std::max<std::int64_t>(wall_clock_us() - begin, 0);
    if (!answer || !answer->starts_with(start_of_answer)) return false;
    const auto there = parse_unsigned(std::string_view(*answer).substr(start_of_answer.size()), INT64_MAX / 4);
    if (!there) return false;
    if (static_cast<std::uint64_t>(took) >= report.round_trip_us) continue;
    report.round_trip_us = static_cast<std::uint64_t>(took);
    report.clock_error_us = report.round_trip_us / 2;
    report.clock_skew_us = static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(*there) - begin - took / 2));
  }
  return true;
}

// The way to one name, which the report then describes.
std::optional<CheckConnection> try_name(CheckReport& report, const std::string& name, std::uint16_t port,
                                        const std::string& tag, Deadline deadline) {
  const auto addresses = resolve(name, port, deadline);
  report.target.clear();
  report.reach = Reach::kNoName;
  if (!addresses) report.reach_trouble = addresses.error().message;
  for (const auto& address : addresses.value_or(std::vector<SocketAddress>())) {
    report.target = address.text();
    CheckConnection connection{connect_to(address, deadline)};
    if (!connection.socket.is_open()) {
      report.reach = errno == ECONNREFUSED ? Reach::kRefused
                     : errno == ETIMEDOUT  ? Reach::kSilent
                                           : Reach::kUnreachable;
      report.reach_trouble = std::strerror(errno);
      continue;
    }
    report.interface = interface_of(connection.socket);
    if (read_clock(report, connection, tag, deadline)) {
      report.reach = Reach::kReached;
      report.reach_trouble.clear();
      return connection;
    }
    report.reach = Reach::kForeign;
    report.reach_trouble = "it accepts connections but does not answer as rank 0 of this step does";
  }
  return std::nullopt;
}

}  // namespace

std::uint16_t side_port(const StepId& id) { return computed_port(id, kSidePorts); }

Result<CheckConnection> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host,
                                       Deadline deadline) {
  using Clock = Deadline::clock;
  const auto tag = step_tag(id);
  // The way aside needs its share of the time.
  const auto patience = std::min<Clock::duration>(kPatience, (deadline - Clock::now()) / 4);
  const auto try_main = [&](CheckReport& way) {
    return try_name(way, report.address, report.port, tag, Clock::now() + patience);
  };
  for (;;) {
    if (auto connection = try_main(report)) return std::move(*connection);
    auto aside = report;
    if (auto connection = try_name(aside, host, side_port(id), tag, Clock::now() + kSidePatience)) {
      // Rank 0 runs, and may have started between the two attempts.
      if (auto again = try_main(report)) return std::move(*again);
      aside.reach = report.reach;
      aside.reach_trouble = report.reach_trouble;
      aside.target = report.target;
      report = std::move(aside);
      return std::move(*connection);
    }
    if (Clock::now() + kPause + kLeastAttempt >= deadline) {
      const auto target = report.target.empty() ? std::string() : cat({" (", report.target, ")"});
      return fail(ErrorCode::kTimeout, cat({report.reach_trouble, target}));
    }
    sleep_for(kPause);
  }
}

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
  const auto before = std::exchange(limit.rlim_cur, wanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ErrorCode::kLimit,
                cat({"rank 0 needs ", std::to_string(wanted), " open files for all ranks, but the limit is ",
                     std::to_string(limit.rlim_max), "; raise it with ulimit -n"}));
  }
  files_before_ = {before, limit.rlim_max};
  return {};
}

Status CheckServer::listen(std::uint16_t port) {
  if (auto raised = raise_file_limit(); !raised) return raised;
  for (const auto number : {port, side_port(findings_.id)}) {
    const bool is_main = number == port;
    if (is_main && !listeners_.empty()) continue;  // both are one
    auto socket = listen_on(number, is_main);
    if (socket.is_open()) {
      listeners_.push_back(std::move(socket));
    } else if (is_main) {
      findings_.port_trouble = errno == EADDRINUSE ? "another program uses it" : std::strerror(errno);
    }
  }
  return {};
}

// Strangers may connect without a pause, and the ranks that are here have to be read, too.
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
bool CheckServer::take(Client& client, const std::string& line) {
  constexpr std::string_view kReport = "report ";
  if (client.rank && line.starts_with(kReport))
    return take_report(client, std::string_view(line).substr(kReport.size()));
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
    const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Deadline::clock::now()));
    (void)::poll(waits.data(), waits.size(), static_cast<int>(left.count()));
    auto wait = waits.begin() + std::ssize(listeners_);
    clients_.remove_if([&](Client& client) { return (wait++)->revents != 0 && !read_from(client); });
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[i].revents != 0) accept_from(listeners_[i]);
    }
    if (left == milliseconds(0)) return;
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
  clients_.clear();
}

}  // namespace bootstrap
