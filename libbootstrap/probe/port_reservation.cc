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
#include <string>
#include <string_view>
#include <utility>

#include "core/plan/frameworks.h"
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
// SO_REUSEADDR. That one would also succeed beside another reservation, so this first looks for one: on an address
// without traffic, an exclusive bind fails only because of wildcard sockets.
Result<Descriptor> bind_beside_time_wait(std::uint16_t port, const std::string& name) {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.is_open() || !bind_quiet_address(probe, port) || !allow_reuse(probe)) return refused(name, errno);
  auto holder = open_socket(SOCK_STREAM);
  if (!holder.is_open() || !allow_reuse(holder) || !bind_everywhere(holder, port)) return refused(name, errno);
  return holder;
}

// A program that was started without standard input, output or error does not get the socket in its place.
Descriptor above_standard_error(Descriptor socket) {
  if (socket.get() > STDERR_FILENO) return socket;
  Descriptor higher(::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return higher.is_open() ? std::move(higher) : std::move(socket);  // without one the port stays reserved all the same
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
  return above_standard_error(std::move(holder));
}

namespace {

std::string sentence(const std::string& reason, const StepPlan& plan, const Settings& settings) {
  if (plan.port_is_users) return cat({reason, "; you set this port: if rank 0 listens on it, set another one"});
  const auto& port = settings.port;
  if (port.value != 0) {
    return cat({reason, "; set another port in ", setting_name("port", port.source),
                ", or let the plugin choose one (--bootstrap-port=auto)"});
  }
  constexpr std::string_view kOtherPorts =
      "; start the step again, or set other ports with --bootstrap-port or --bootstrap-port-range; if this happens "
      "often, let Slurm reserve the ports (MpiParams=ports= in slurm.conf), or use --bootstrap-claim=off to start "
      "without a reserved port";
  return cat({reason, kOtherPorts});
}

std::string name_of(std::string_view what, std::uint16_t port, const std::string& host) {
  return cat({what, " ", std::to_string(port), " on ", host});
}

}  // namespace

std::vector<RefusedPort> StepPorts::reserve(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  std::vector<RefusedPort> refused;
  const auto take = [&](std::uint16_t port, const std::string& name) -> Status {
    auto reservation = reserve_port(port, name);
    if (!reservation) return fail(reservation.error());
    reservations_.push_back(std::move(*reservation));
    return {};
  };
  if (plan.port_to_reserve) {
    const auto port = *plan.port_to_reserve;
    const auto taken = take(port, name_of("MASTER_PORT", port, facts.layout.host_of(0)));
    if (!taken) plan.port_to_reserve.reset();
    // A single task meets no other, and a server would report the error itself.
    if (!taken && facts.layout.size() > 1) {
      refused.push_back({sentence(taken.error().message, plan, settings), plan.port_is_users});
    }
    // The step did not ask: a reservation could keep the user's own program from the port.
    if (taken && plan.port_is_users && facts.decision.asked == Asked::kUnasked) {
      reservations_.pop_back();
      plan.port_to_reserve.reset();
    }
  }
  for (const auto port : plan.worker_ports) {
    const auto taken = take(port, name_of("TF_CONFIG port", port, facts.layout.host_of(facts.local_ranks.front())));
    if (taken) continue;
    constexpr std::string_view kHint =
        "; start the step again, or set other ports with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE";
    refused.push_back({cat({taken.error().message, kHint})});
  }
  const auto taken = take_task_ports(plan, facts, settings);
  if (!taken) refused.push_back({taken.error().message});
  return refused;
}

namespace {

// Of one task. Ports in use are passed over, since no other task has to know which it has. Empty: too few are free.
std::string take_ports_of_task(const StepFacts& facts, const Settings& settings, Rank rank,
                               std::vector<Descriptor>& taken) {
  constexpr std::uint32_t kMostInUse = 16;
  std::vector<std::string> ports;
  for (std::uint32_t i = 0; i < settings.ports.value + kMostInUse; ++i) {
    const auto port = task_port(facts, settings, rank, i);
    if (port == 0) break;
    auto reservation = reserve_port(port);
    if (!reservation) continue;
    taken.push_back(std::move(*reservation));
    ports.push_back(std::to_string(port));
    if (ports.size() == settings.ports.value) return join(ports, ",");
  }
  return {};
}

}  // namespace

Status StepPorts::take_task_ports(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  const auto at = plan.find(kPortsVariable);
  if (!at) return {};
  Status outcome;
  std::vector<std::string> values;
  std::vector<Descriptor> taken;
  for (const auto rank : facts.local_ranks) {
    values.push_back(take_ports_of_task(facts, settings, rank, taken));
    if (!values.back().empty() || !outcome) continue;
    outcome = fail(ErrorCode::kUnavailable,
                   cat({setting_text("ports", settings.ports.source, std::to_string(settings.ports.value)),
                        ": too few ports are free for rank ", std::to_string(rank), " on ", facts.layout.host_of(rank),
                        "; set others with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE"}));
  }
  if (outcome) {
    plan.variables[*at].values = values;
    if (settings.claim.value) std::move(taken.begin(), taken.end(), std::back_inserter(reservations_));
  } else {
    plan.variables.erase(plan.variables.begin() + static_cast<std::ptrdiff_t>(*at));
    plan.removals.emplace_back(kPortsVariable);
  }
  renew_exports(plan.variables, 0, values.size());
  return outcome;
}

}  // namespace bootstrap
