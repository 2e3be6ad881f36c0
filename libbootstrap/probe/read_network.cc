// The routes of this node and the RDMA devices behind its interfaces, from files alone: no socket, no packet.
// SPDX-License-Identifier: Apache-2.0
#include "probe/read_network.h"

#include <algorithm>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
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
