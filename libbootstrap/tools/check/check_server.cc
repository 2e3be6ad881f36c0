// Rank 0 in a check: listens where the ranks are to meet, hears their reports, and tells all what came of it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_server.h"

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

constexpr std::size_t kStrangers = 64;  // connections beyond one for each rank
constexpr std::uint64_t kOwnFiles = 64;
constexpr int kMaxGreetings = 16;

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
    return fail(ErrorCode::kLimit, cat({"rank 0 needs ", std::to_string(wanted), " open files to hear all ranks, and ",
                                        std::to_string(limit.rlim_max), " are allowed; raise ulimit -n"}));
  }
  return before;
}

}  // namespace

CheckServer::CheckServer(std::string step_tag, std::size_t ranks, Descriptor poller)
    : step_tag_(std::move(step_tag)), ranks_(ranks), poller_(std::move(poller)), reports_(ranks), outcomes_(ranks) {}

CheckServer::CheckServer(CheckServer&& other) noexcept = default;

CheckServer::~CheckServer() {
  guests_.clear();
  doors_.clear();
  rlimit limit{};
  if (files_before_ == 0 || !poller_.is_open() || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = files_before_;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<CheckServer> CheckServer::open(const std::string& step_tag, std::size_t ranks) {
  const auto before = raise_file_limit(ranks + kStrangers + kOwnFiles);
  if (!before) return fail(before.error());
  CheckServer host(step_tag, ranks, Descriptor(::epoll_create1(EPOLL_CLOEXEC)));
  host.files_before_ = *before;
  if (host.poller_.is_open()) return host;
  return fail(ErrorCode::kUnavailable, cat({"rank 0 cannot wait for connections: ", std::strerror(errno)}));
}

bool CheckServer::watch(int descriptor) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

Status CheckServer::listen(std::uint16_t port) {
  auto listening = listen_on(port, true);
  if (listening.error == EADDRINUSE) return fail(ErrorCode::kUnavailable, "another program has it");
  if (listening.error != 0) return fail(ErrorCode::kUnavailable, std::strerror(listening.error));
  if (!watch(listening.socket.get())) return fail(ErrorCode::kUnavailable, std::strerror(errno));
  doors_.push_back(std::move(listening.socket));
  return {};
}

void CheckServer::open_side_door(std::span<const std::uint16_t> ports) {
  for (const auto port : ports) {
    auto listening = listen_on(port, false);
    if (listening.error != 0 || !watch(listening.socket.get())) continue;
    doors_.push_back(std::move(listening.socket));
    return;
  }
}

// Whoever has not said who it is gives way to those who come, the oldest one first.
void CheckServer::make_room() {
  if (guests_.size() < ranks_ + kStrangers) return;
  const auto oldest = std::min_element(guests_.begin(), guests_.end(), [](const auto& one, const auto& other) {
    return std::pair(one.second.rank.has_value(), one.second.number) <
           std::pair(other.second.rank.has_value(), other.second.number);
  });
  ++strangers_;
  drop(oldest->first);
}

void CheckServer::accept_from(int door) {
  while (true) {
    Descriptor socket(::accept4(door, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    make_room();
    // Closed by us it is reset, so that no connection of ours stays in TIME_WAIT and keeps the port from a server that
    // does not say SO_REUSEADDR.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const int descriptor = socket.get();
    if (!watch(descriptor)) continue;
    Client guest;
    guest.socket = std::move(socket);
    guest.number = arrivals_++;
    guests_.emplace(descriptor, std::move(guest));
  }
}

void CheckServer::drop(int descriptor) {
  const auto at = guests_.find(descriptor);
  if (at == guests_.end()) return;
  if (at->second.owes_outcome) --owing_;
  guests_.erase(at);
}

bool CheckServer::handle_hello(Client& guest, const Frame& frame) {
  const auto hello = read_hello(frame.body);
  if (!hello || hello->step_tag != step_tag_ || hello->rank == 0 || hello->rank >= ranks_) return false;
  if ((guest.rank && *guest.rank != hello->rank) || ++guest.greetings > kMaxGreetings) return false;
  guest.rank = hello->rank;
  const auto answer = write_frame(FrameKind::kClock, microseconds_now());
  return ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(answer.size());
}

// The first report of a rank counts.
bool CheckServer::handle_report(Client& guest, const Frame& frame) {
  if (!guest.rank || reports_[*guest.rank]) return false;
  auto report = read_report(frame.body);
  if (!report || report->step_tag != step_tag_ || report->rank != *guest.rank) return false;
  reports_[*guest.rank] = std::move(*report);
  guest.has_reported = guest.owes_outcome = true;
  ++report_count_;
  ++owing_;
  return true;
}

bool CheckServer::handle_outcome(Client& guest, const Frame& frame) {
  if (!guest.owes_outcome) return false;
  auto outcome = read_outcome(frame.body);
  if (!outcome) return false;
  outcomes_[*guest.rank] = std::move(*outcome);
  guest.owes_outcome = false;
  --owing_;
  return true;
}

bool CheckServer::handle(Client& guest, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kHello:
      return handle_hello(guest, frame);
    case FrameKind::kReport:
      return handle_report(guest, frame);
    case FrameKind::kOutcome:
      return handle_outcome(guest, frame);
    case FrameKind::kClock:
    case FrameKind::kExchange:
    case FrameKind::kVerdict:
      break;
  }
  return false;
}

void CheckServer::read_from(int descriptor) {
  const auto at = guests_.find(descriptor);
  if (at == guests_.end()) return;
  auto& guest = at->second;
  std::array<char, 4096> buffer;
  const auto count = ::recv(descriptor, buffer.data(), buffer.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return drop(descriptor);
  std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
  while (!bytes.empty()) {
    const auto frame = guest.reader.take(bytes);
    if (!frame || (*frame && !handle(guest, **frame))) {
      ++strangers_;
      return drop(descriptor);
    }
  }
}

template <class Done>
void CheckServer::serve(Deadline deadline, Done done) {
  std::array<epoll_event, 64> events{};
  while (!done()) {
    const int left = milliseconds_until(deadline);
    const int count = ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), left);
    if (count == 0 && left == 0) return;
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
      const bool is_door =
          std::any_of(doors_.begin(), doors_.end(), [&](auto& door) { return door.get() == descriptor; });
      is_door ? accept_from(descriptor) : read_from(descriptor);
    }
    if (Deadline::clock::now() >= deadline) return;
  }
}

void CheckServer::gather_reports(Deadline deadline) {
  serve(deadline, [this] { return report_count_ + 1 >= ranks_; });
}

void CheckServer::gather_outcomes(Deadline deadline) {
  serve(deadline, [this] { return owing_ == 0; });
}

void CheckServer::tell(FrameKind kind, std::string_view body) {
  const auto text = write_frame(kind, body);
  std::vector<int> deaf;
  for (const auto& [descriptor, guest] : guests_) {
    if (!guest.has_reported) continue;
    const auto count = ::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count != static_cast<ssize_t>(text.size())) deaf.push_back(descriptor);
  }
  for (const auto descriptor : deaf) drop(descriptor);
}

void CheckServer::close_doors() { doors_.clear(); }

void CheckServer::part(Deadline deadline) {
  for (auto at = guests_.begin(); at != guests_.end();)
    at = at->second.has_reported ? std::next(at) : guests_.erase(at);
  serve(deadline, [this] { return guests_.empty(); });
  guests_.clear();
}

}  // namespace bootstrap
