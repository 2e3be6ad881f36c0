// Lines of text between two processes over TCP, of which neither ever waits for the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probe/file_descriptor.h"

namespace bootstrap {

// An IPv4 or IPv6 address without a port.
struct HostAddress {
  sockaddr_storage storage{};

  static HostAddress loopback();
  // Of the bytes of a sockaddr; nothing when they are none, or those of no host.
  static std::optional<HostAddress> read(std::string_view bytes);
  void set_port(std::uint16_t port);
  std::uint16_t port() const;
  socklen_t size() const;
};

class LineSocket {
 public:
  explicit LineSocket(Descriptor socket) : socket_(std::move(socket)) {}
  LineSocket(LineSocket&&) noexcept = default;
  LineSocket& operator=(LineSocket&&) noexcept = default;
  // Ends the connection, and not this process' part alone: a forked child may have the descriptor, too. What was sent
  // is on its way by then.
  ~LineSocket();

  static LineSocket connect(HostAddress host, std::uint16_t port);

  // `line` has no line feed. What the kernel does not take at once goes with a later call of flush().
  void send(std::string_view line);
  void flush();
  bool has_sent_all() const { return waiting_.empty() || is_closed_; }

  // The lines that have come since the last call; `is_closed` tells then whether more may come.
  std::vector<std::string> receive();
  bool is_closed() const { return is_closed_; }

 private:
  Descriptor socket_;
  std::string waiting_;   // to be sent
  std::string received_;  // the beginning of a line
  bool is_closed_ = false;
};

// A port of this host; free, and closed with its owner.
class LineListener {
 public:
  static std::optional<LineListener> open(HostAddress host);
  std::uint16_t port() const { return port_; }
  // Who has come since the last call, one after the other.
  std::optional<LineSocket> accept();

  LineListener(LineListener&&) noexcept = default;
  LineListener& operator=(LineListener&&) noexcept = default;
  ~LineListener();

 private:
  LineListener(Descriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}

  Descriptor socket_;
  std::uint16_t port_;
};

}  // namespace bootstrap
