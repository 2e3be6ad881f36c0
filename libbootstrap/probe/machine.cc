// What ranks need of this machine to communicate: routes, RDMA devices, memory. Sends no packet.
// SPDX-License-Identifier: Apache-2.0
#include "probe/machine.h"

#include <gnu/libc-version.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {

Machine read_machine(const std::string& root) {
  Machine machine;
  utsname name{};
  if (::uname(&name) == 0) {
    machine.host = name.nodename;
    machine.kernel = cat({name.sysname, " ", name.release});
  }
  machine.libc = cat({"glibc ", ::gnu_get_libc_version()});
  const FileTree tree(root);
  machine.nvidia_module = tree.read("/sys/module/nvidia/version");
  struct statvfs memory {};
  if (::statvfs((root + "/dev/shm").c_str(), &memory) == 0) {
    machine.shm_free = static_cast<std::uint64_t>(memory.f_bavail) * memory.f_frsize;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.locked_memory = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  }
  machine.rdma_devices = static_cast<std::uint32_t>(tree.names_in("/sys/class/infiniband").size());
  return machine;
}

namespace {

// proc(5) and the kernel's ABI/testing/sysfs-class-net: dev_port counts the ports of a device from 0.
std::vector<RdmaPort> read_rdma_ports(const FileTree& tree) {
  std::vector<RdmaPort> ports;
  for (auto& interface : tree.names_in("/sys/class/net")) {
    const auto folder = cat({"/sys/class/net/", interface});
    auto devices = tree.names_in(cat({folder, "/device/infiniband"}));
    if (devices.empty()) continue;
    std::sort(devices.begin(), devices.end());
    const auto port = parse_unsigned(tree.read(cat({folder, "/dev_port"})), 255).value_or(0) + 1;
    ports.push_back({std::move(interface), cat({devices.front(), ":", std::to_string(port)})});
  }
  return ports;
}

}  // namespace

void gather_network(StepFacts& facts, const Settings& settings, const std::string& root) {
  using Kind = InterfaceChoice::Kind;
  const auto kind = settings.interface.value.kind;
  const bool is_by_route = kind == Kind::kGloo || kind == Kind::kAuto;
  const bool has_address = !facts.meeting.ours.empty() || !facts.meeting.users.empty();
  if (kind == Kind::kOff || facts.layout.node_count() == 1) return;
  const FileTree tree(root);
  if (facts.environment.has("GLOO_SOCKET_IFNAME") || facts.environment.has("NCCL_SOCKET_IFNAME")) {
    facts.interfaces = tree.names_in("/sys/class/net");
    std::erase(facts.interfaces, "lo");
    std::sort(facts.interfaces.begin(), facts.interfaces.end());
    // The user's list may have 2,048 names. A node with more interfaces than this is not judged.
    constexpr std::size_t kMost = 64;
    if (facts.interfaces.size() > kMost) facts.interfaces.clear();
  }
  if (is_by_route && !has_address) return;
  facts.routes = parse_ipv4_routes(tree.read("/proc/net/route"));
  for (auto& route : parse_ipv6_routes(tree.read("/proc/net/ipv6_route"))) facts.routes.push_back(std::move(route));
  if (kind != Kind::kGloo) facts.rdma = read_rdma_ports(tree);
}

bool is_own_address(std::string_view address) {
  const auto parsed = parse_ip_address(address);
  if (!parsed) return true;
  const bool is_ipv4 = parsed->bits == 32;
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  std::memcpy(&ipv4.sin_addr, parsed->bytes.data(), sizeof ipv4.sin_addr);
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  std::memcpy(&ipv6.sin6_addr, parsed->bytes.data(), sizeof ipv6.sin6_addr);
  const Descriptor socket(::socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bound = is_ipv4 ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4)
                             : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6);
  return bound == 0 || errno != EADDRNOTAVAIL;
}

}  // namespace bootstrap
