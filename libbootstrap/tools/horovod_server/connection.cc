// One client of the server: a request is read, answered and forgotten, without ever waiting for the client.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace bootstrap {
namespace {

constexpr std::chrono::milliseconds kDrainDeadline{1000};

// Who moves this much within a deadline gets another one: large values pass slow networks, single bytes do not hold us.
constexpr std::size_t kGoodProgress = 65536;

bool is_only_not_yet(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connection::Connection(Descriptor socket, ConnectionHouse& house, TimePoint now)
    : socket_(std::move(socket)), house_(house), deadline_(now + house.read_deadline), reader_(house.http) {}

Connection::~Connection() { close(); }

short Connection::events() const { return stage_ == Stage::kWriting ? POLLOUT : POLLIN; }

void Connection::close() {
  socket_.reset();
  response_ = {};
  house_.buffered -= std::exchange(counted_, 0);
}

void Connection::abort() {
  const linger reset{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  close();
}

void Connection::count_buffered() {
  house_.buffered += reader_.buffered() - counted_;
  counted_ = reader_.buffered();
}

void Connection::extend(std::size_t count, std::chrono::milliseconds by, TimePoint now) {
  progress_ += count;
  if (progress_ < kGoodProgress) return;
  progress_ = 0;
  deadline_ = now + by;
}

void Connection::advance(TimePoint now) {
  if (stage_ == Stage::kReading) receive(now);
  if (stage_ == Stage::kWriting) send(now);
  if (stage_ == Stage::kDraining) drain();
}

void Connection::turn_away(TimePoint now) {
  must_drain_ = true;
  respond(http_refusal(403, "this address is none of the hosts of the step"), now);
}

void Connection::receive(TimePoint now) {
  const auto count = ::recv(socket_.get(), house_.buffer.data(), house_.buffer.size(), MSG_DONTWAIT);
  if (count < 0 && is_only_not_yet(errno)) return;
  if (count < 0 || (count == 0 && !has_begun_)) return close();
  // Its other half may be open still; if not, the answer goes nowhere.
  if (count == 0) return respond(http_refusal(400, "the request ends before it is complete"), now);
  has_begun_ = true;
  extend(static_cast<std::size_t>(count), house_.read_deadline, now);

  std::string_view bytes(house_.buffer.data(), static_cast<std::size_t>(count));
  const auto state = reader_.take(bytes);
  count_buffered();
  if (state == HttpRequestReader::State::kComplete) {
    must_drain_ = !bytes.empty();
    auto response = house_.store.answer(reader_.request());
    count_buffered();
    respond(std::move(response), now);
  } else if (state == HttpRequestReader::State::kRefused) {
    must_drain_ = true;
    respond(reader_.refusal(), now);
  } else if (house_.buffered + house_.store.bytes() > house_.max_bytes) {
    must_drain_ = true;
    respond(http_refusal(503, "too much is being sent at once: try again"), now);
  }
}

void Connection::respond(HttpResponse response, TimePoint now) {
  head_ = http_head(response);
  response_ = std::move(response);
  reader_ = HttpRequestReader(house_.http);
  count_buffered();
  stage_ = Stage::kWriting;
  progress_ = 0;
  deadline_ = now + house_.write_deadline;
}

void Connection::send(TimePoint now) {
  const std::string_view parts[] = {head_, response_.body ? std::string_view(*response_.body) : std::string_view()};
  iovec pieces[2];
  std::size_t count = 0;
  std::size_t before = 0;
  for (const auto part : parts) {
    const auto skip = std::min(part.size(), sent_ - std::min(sent_, before));
    // sendmsg(2) does not write there.
    if (skip < part.size()) pieces[count++] = {const_cast<char*>(part.data()) + skip, part.size() - skip};
    before += part.size();
  }
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  const auto done = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (done < 0 && is_only_not_yet(errno)) return;
  if (done < 0) return close();
  sent_ += static_cast<std::size_t>(done);
  extend(static_cast<std::size_t>(done), house_.write_deadline, now);
  if (sent_ < before) return;
  if (!must_drain_) return close();
  // Closed with unread bytes, the socket would send a reset, which overtakes the answer.
  (void)::shutdown(socket_.get(), SHUT_WR);
  response_ = {};
  stage_ = Stage::kDraining;
  deadline_ = now + kDrainDeadline;
}

void Connection::drain() {
  const auto count = ::recv(socket_.get(), house_.buffer.data(), house_.buffer.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && !is_only_not_yet(errno))) close();
}

void Connection::expire(TimePoint now) {
  if (stage_ == Stage::kWriting) return abort();
  if (stage_ == Stage::kDraining) return close();
  must_drain_ = true;
  respond(http_refusal(408, "the request was not complete in time"), now);
  send(now);
}

}  // namespace bootstrap
