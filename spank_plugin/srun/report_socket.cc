// In srun: the UDP socket where it receives what the nodes report.
// SPDX-License-Identifier: Apache-2.0
#include "srun/report_socket.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "probe/port_reservation.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr int kQueue =
    8 << 20;  // bytes: all nodes of a large step report at the same moment; the kernel may allow less

// The kernel drops all other datagrams before they enter the queue: a flood of them displaces no report. A datagram
// that is too short is dropped by the load beyond its end. Without a filter receive() still compares the token.
void accept_only(int socket, const std::string& prefix) {
  std::vector<sock_filter> program;
  const auto words = prefix.size() / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < words; ++i) {
    const auto place = static_cast<std::uint32_t>(sizeof(udphdr) + i * sizeof(std::uint32_t));
    std::uint32_t word = 0;
    std::memcpy(&word, prefix.data() + i * sizeof word, sizeof word);
    const auto to_the_end = static_cast<std::uint8_t>(2 * (words - i - 1) + 1);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word), 0, to_the_end));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, UINT32_MAX));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  (void)::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

// A socket can be bound only to addresses of its own host. Without a free descriptor the answer is false.
bool is_of_another_host(sockaddr_in6 address) {
  const Descriptor socket(::socket(address.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return false;
  address.sin6_port = 0;  // at the same place in sockaddr_in
  const auto size = address.sin6_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) != 0 &&
         errno == EADDRNOTAVAIL;
}

}  // namespace

ReportSocket ReportSocket::open() {
  ReportSocket opened;
  const auto token = random_bits();
  if (!token) return opened;
  auto socket = open_socket(SOCK_DGRAM | SOCK_NONBLOCK);
  if (!socket.is_open()) return opened;
  accept_only(socket.get(), failure_prefix(*token));  // before there is a port to send to
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kQueue, sizeof kQueue);
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  if (!bind_everywhere(socket, 0)) return opened;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return opened;
  opened.socket_ = std::move(socket);
  opened.address_ = {ntohs(bound.sin6_port), *token};  // at the same place in sockaddr_in
  return opened;
}

std::optional<ReceivedReport> ReportSocket::receive(bool asks_host) const {
  constexpr int kMostOthers = 4096;
  std::array<char, kMaxReportText + 1> text;
  for (int others = 0; others < kMostOthers; ++others) {
    sockaddr_in6 from{};
    socklen_t size_of_from = sizeof from;
    auto* const sender = reinterpret_cast<sockaddr*>(&from);
    const auto size = ::recvfrom(socket_.get(), text.data(), text.size(), 0, sender, &size_of_from);
    if (size < 0) return std::nullopt;
    const std::string_view received(text.data(), static_cast<std::size_t>(size));
    if (auto failure = read_report<Failure>(received, address_.token)) return ReceivedReport{std::move(*failure)};
    auto report = read_report<NodeReport>(received, address_.token);
    if (report) return ReceivedReport{std::move(*report), asks_host && is_of_another_host(from)};
  }
  return std::nullopt;
}

// For a socket that is not connected the call returns an error, but it also wakes the thread.
void ReportSocket::wake() const { (void)::shutdown(socket_.get(), SHUT_RD); }

// Slurm's own need was measured (etc/doc/slurm-facts.md).
bool has_spare_descriptors(int lowest_free, std::size_t nodes) {
  constexpr std::size_t kOfSrun = 12;
  constexpr std::size_t kOfNode = 2;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return static_cast<std::size_t>(lowest_free) + kOfSrun + kOfNode * nodes <= limit.rlim_cur;
}

}  // namespace bootstrap
