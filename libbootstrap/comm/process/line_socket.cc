// Lines of text between two processes over TCP, of which neither ever waits for the other.
// SPDX-License-Identifier: Apache-2.0
#include "comm/process/line_socket.h"

#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace bootstrap {
namespace {

constexpr std::size_t kLongestLine = 8192;
constexpr std::size_t kMostWaiting = 65536;  // for a peer that stands still
constexpr int kTcp = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

bool comes_later(int error) { return error == EAGAIN || error == EINTR; }

const sockaddr* pointer_to(const HostAddress& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

}  // namespace

HostAddress HostAddress::loopback() {
  HostAddress address;
  sockaddr_in host{};
  host.sin_family = AF_INET;
  host.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::memcpy(&address.storage, &host, sizeof host);
  return address;
}

std::optional<HostAddress> HostAddress::read(std::string_view bytes) {
  HostAddress address;
  if (bytes.size() < sizeof(sockaddr_in6)) return std::nullopt;
  std::memcpy(&address.storage, bytes.data(), sizeof(sockaddr_in6));
  const auto family = address.storage.ss_family;
  const auto& host = reinterpret_cast<const sockaddr_in&>(address.storage);
  if (family == AF_INET6 || (family == AF_INET && host.sin_addr.s_addr != htonl(INADDR_ANY))) return address;
  return std::nullopt;
}

// At the same place in both kinds.
void HostAddress::set_port(std::uint16_t port) { reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port); }

std::uint16_t HostAddress::port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port); }

socklen_t HostAddress::size() const {
  return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

LineSocket::~LineSocket() {
  if (!socket_.is_open()) return;
  flush();
  (void)::shutdown(socket_.get(), SHUT_RDWR);
}

LineSocket LineSocket::connect(HostAddress host, std::uint16_t port) {
  host.set_port(port);
  LineSocket line(Descriptor(::socket(host.storage.ss_family, kTcp, 0)));
  const int on = 1;
  (void)::setsockopt(line.socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int result = ::connect(line.socket_.get(), pointer_to(host), host.size());
  line.is_closed_ = result != 0 && errno != EINPROGRESS;
  return line;
}

void LineSocket::send(std::string_view line) {
  if (is_closed_ || waiting_.size() > kMostWaiting) return;
  waiting_.append(line).push_back('\n');
  flush();
}

void LineSocket::flush() {
  while (!waiting_.empty() && !is_closed_) {
    const auto size = ::send(socket_.get(), waiting_.data(), waiting_.size(), MSG_NOSIGNAL);
    if (size < 0 && comes_later(errno)) return;
    if (size < 0) {
      waiting_.clear();  // what the peer has sent before is still to be read
      return;
    }
    waiting_.erase(0, static_cast<std::size_t>(size));
  }
}

std::vector<std::string> LineSocket::receive() {
  std::vector<std::string> lines;
  std::array<char, 4096> bytes;
  while (!is_closed_) {
    const auto size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size < 0 && comes_later(errno)) break;
    is_closed_ = size <= 0;
    if (size > 0) received_.append(bytes.data(), static_cast<std::size_t>(size));
    for (auto end = received_.find('\n'); end != std::string::npos; end = received_.find('\n')) {
      lines.push_back(received_.substr(0, end));
      received_.erase(0, end + 1);
    }
    is_closed_ = is_closed_ || received_.size() > kLongestLine;
  }
  return lines;
}

std::optional<LineListener> LineListener::open(HostAddress host) {
  host.set_port(0);
  Descriptor socket(::socket(host.storage.ss_family, kTcp, 0));
  if (!socket.is_open() || ::bind(socket.get(), pointer_to(host), host.size()) != 0) return std::nullopt;
  socklen_t size = sizeof host.storage;
  const bool is_listening = ::listen(socket.get(), SOMAXCONN) == 0 &&
                            ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&host.storage), &size) == 0;
  if (!is_listening) return std::nullopt;
  return LineListener(std::move(socket), host.port());
}

std::optional<LineSocket> LineListener::accept() {
  Descriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) return std::nullopt;
  const int on = 1;
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return LineSocket(std::move(socket));
}

LineListener::~LineListener() {
  if (socket_.is_open()) (void)::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace bootstrap
