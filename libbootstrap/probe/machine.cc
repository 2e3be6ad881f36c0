// What this machine has that communication between ranks depends on, from files alone: no socket, no packet.
// SPDX-License-Identifier: Apache-2.0
#include "probe/machine.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <string_view>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (...)": the first word of
// numbers with dots between them.
std::string module_version(std::string_view line) {
  for (const auto word : split(line, ' ')) {
    const auto parts = split(word, '.');
    const bool is_version = parts.size() >= 2 && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
                              return parse_unsigned(part).has_value();
                            });
    if (is_version) return std::string(word);
  }
  return {};
}

}  // namespace

Machine read_machine(const std::string& root) {
  Machine machine;
  utsname name{};
  if (::uname(&name) == 0) {
    machine.host = name.nodename;
    machine.kernel = cat({name.sysname, " ", name.release});
  }
  machine.libc = cat({"glibc ", ::gnu_get_libc_version()});
  const FileTree tree(root);
  const auto nvidia = tree.read("/proc/driver/nvidia/version");
  machine.nvidia_module = module_version(split(nvidia, '\n').front());
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
  if (kind == Kind::kOff || facts.layout.node_count() == 1 || (is_by_route && facts.master_ip.empty())) return;
  const FileTree tree(root);
  facts.routes = parse_ipv4_routes(tree.read("/proc/net/route"));
  for (auto& route : parse_ipv6_routes(tree.read("/proc/net/ipv6_route"))) facts.routes.push_back(std::move(route));
  if (kind != Kind::kGloo) facts.rdma = read_rdma_ports(tree);
}

}  // namespace bootstrap
