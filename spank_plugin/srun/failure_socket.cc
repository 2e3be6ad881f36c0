// In srun: the UDP socket to which the nodes of one step send a line for each task that failed.
// SPDX-License-Identifier: Apache-2.0
#include "srun/failure_socket.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "probe/secrets.h"

namespace bootstrap {
namespace {

// Both families, where there are two: it is not for us to know which one the nodes use.
int open_socket() {
  const int both = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (both < 0) return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int off = 0;
  (void)::setsockopt(both, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return both;
}

// bind(2) of the any-address of the socket's family with port 0; the port that it got, or 0.
std::uint16_t bind_anywhere(int socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) return 0;
  size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin6_port);  // at the same place in sockaddr_in
}

std::uint32_t word_at(const std::string& text, std::size_t place) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < sizeof word; ++i) word = (word << 8) | static_cast<std::uint8_t>(text[place + i]);
  return word;
}

// The kernel drops all else before it takes a place in the queue: whoever floods this port without the token takes no
// line away. A datagram that is too short is dropped by the load beyond its end. Without a filter the token is still
// looked at by who reads.
void accept_only(int socket, const std::string& prefix) {
  std::vector<sock_filter> program;
  const auto words = prefix.size() / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < words; ++i) {
    const auto place = static_cast<std::uint32_t>(sizeof(udphdr) + i * sizeof(std::uint32_t));
    const auto to_the_end = static_cast<std::uint8_t>(2 * (words - i - 1) + 1);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word_at(prefix, i * sizeof(std::uint32_t)), 0, to_the_end));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, UINT32_MAX));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  (void)::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

}  // namespace

FailureSocket FailureSocket::open() {
  FailureSocket opened;
  const auto token = random_bits();
  if (!token) return opened;
  Descriptor socket(open_socket());
  if (!socket.is_open()) return opened;
  accept_only(socket.get(), failure_prefix(*token));  // before there is a port to send to
  const auto port = bind_anywhere(socket.get());
  if (port == 0) return opened;
  opened.socket_ = std::move(socket);
  opened.address_ = {port, *token};
  return opened;
}

std::optional<Failure> FailureSocket::receive() const {
  constexpr int kMostOthers = 4096;
  std::array<char, kMaxFailureText + 1> text;
  for (int others = 0; others < kMostOthers; ++others) {
    const auto size = ::recv(socket_.get(), text.data(), text.size(), 0);
    if (size < 0) return std::nullopt;
    auto failure = read_failure({text.data(), static_cast<std::size_t>(size)}, address_.token);
    if (failure) return failure;
  }
  return std::nullopt;
}

}  // namespace bootstrap
