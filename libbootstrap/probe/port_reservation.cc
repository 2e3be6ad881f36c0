// Reserves TCP ports so that only a server that sets SO_REUSEADDR, as rendezvous servers do, can listen on them.
// SPDX-License-Identifier: Apache-2.0
#include "probe/port_reservation.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {

Descriptor open_socket(int type) {
  Descriptor socket(::socket(AF_INET6, type | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return Descriptor(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  const int off = 0;
  (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return socket;
}

bool bind_everywhere(const Descriptor& socket, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);  // at the same place in sockaddr_in
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(socket.get(), any, sizeof address) == 0) return true;
  if (errno != EAFNOSUPPORT) return false;
  address.sin6_family = AF_INET;
  return ::bind(socket.get(), any, sizeof address) == 0;
}

namespace {

bool allow_reuse(const Descriptor& socket) {
  const int on = 1;
  return ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
}

// Binds to 127.83.66.1. No server listens there and no connection ends there, so that only a wildcard socket, also one
// of IPv6 and IPv4, can make this fail.
bool bind_quiet_address(const Descriptor& socket, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl((127U << 24) | (83U << 16) | (66U << 8) | 1U);
  address.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

tl::unexpected<Error> refused(const std::string& name, int error) {
  if (error == EADDRINUSE) {
    return fail(ErrorCode::kUnavailable, cat({name, " is already in use by another program"}));
  }
  return fail(ErrorCode::kUnavailable, cat({name, " cannot be reserved: ", std::strerror(error)}));
}

// Connections of an earlier server in TIME_WAIT, for up to 60 s, make the exclusive bind fail, but not a bind with
// SO_REUSEADDR. That bind would also succeed beside another reservation, so this first looks for a reservation: on an
// address without traffic, an exclusive bind fails only because of wildcard sockets.
Result<Descriptor> bind_beside_time_wait(std::uint16_t port, const std::string& name) {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.is_open() || !bind_quiet_address(probe, port) || !allow_reuse(probe)) return refused(name, errno);
  auto holder = open_socket(SOCK_STREAM);
  if (!holder.is_open() || !allow_reuse(holder) || !bind_everywhere(holder, port)) return refused(name, errno);
  return holder;
}

}  // namespace

Result<Descriptor> reserve_port(std::uint16_t port, const std::string& name) {
  auto holder = open_socket(SOCK_STREAM);
  if (!holder.is_open()) return refused(name, errno);
  if (!bind_everywhere(holder, port)) {
    if (errno != EADDRINUSE) return refused(name, errno);
    auto beside = bind_beside_time_wait(port, name);
    if (!beside) return beside;
    holder = std::move(*beside);
  } else if (!allow_reuse(holder)) {  // not before the bind, where it would permit a second reservation
    return refused(name, errno);
  }
  if (holder.get() > STDERR_FILENO) return holder;
  // A program that was started without standard input, output or error does not get the socket in its place.
  Descriptor higher(::fcntl(holder.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return higher.is_open() ? std::move(higher) : std::move(holder);  // the low number reserves the port, too
}

namespace {

// Skips ports in use: no other task needs to know which ports a task has. Empty if too few are free.
std::vector<std::uint16_t> reserve_free_ports(const std::vector<std::uint16_t>& candidates, std::uint32_t count,
                                              std::vector<Descriptor>& taken) {
  std::vector<std::uint16_t> ports;
  for (const auto port : candidates) {
    auto reservation = reserve_port(port);
    if (!reservation) continue;
    taken.push_back(std::move(*reservation));
    ports.push_back(port);
    if (ports.size() == count) return ports;
  }
  return {};
}

}  // namespace

PortFacts StepPorts::reserve(const PortPlan& plan) {
  PortFacts found;
  const auto take = [&](const PortToReserve& wanted, std::vector<Descriptor>& taken) -> std::string {
    auto reservation = reserve_port(wanted.port, wanted.name);
    if (!reservation) return reservation.error().message;
    taken.push_back(std::move(*reservation));
    return {};
  };
  std::vector<Descriptor> tried;
  if (plan.master) {
    found.refused_master = take(*plan.master, plan.is_only_tried ? tried : reservations_);
    found.reserves_master = found.refused_master.empty() && !plan.is_only_tried;
  }
  for (const auto& worker : plan.workers) {
    auto refused = take(worker, reservations_);
    if (!refused.empty()) found.refused_workers.push_back(std::move(refused));
  }
  std::vector<Descriptor> taken;
  for (const auto& candidates : plan.of_tasks) {
    found.of_tasks.push_back(reserve_free_ports(candidates, plan.count_of_task, taken));
    if (!found.of_tasks.back().empty()) continue;
    if (!found.task_without_ports) found.task_without_ports = found.of_tasks.size() - 1;
  }
  if (found.task_without_ports) {
    found.of_tasks.clear();
  } else if (plan.reserves_ports_of_tasks) {
    std::move(taken.begin(), taken.end(), std::back_inserter(reservations_));
  }
  return found;
}

}  // namespace bootstrap
