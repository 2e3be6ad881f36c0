// Any bytes as a topology: refused with a readable reason, or a machine that fits together; and as sets of CPUs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <string>

#include "core/hardware/topology.h"
#include "property.h"

namespace {

using bootstrap::CpuSet;
using bootstrap::Gpu;
using bootstrap::Topology;

void check_message(const bootstrap::Error& error) {
  check(!error.message.empty() && error.message.size() < 600, "a message is one readable sentence");
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  check(std::all_of(error.message.begin(), error.message.end(), printable), "a message is printable");
}

void check_set(const bootstrap::Result<CpuSet>& set) {
  if (!set) return check_message(set.error());
  const auto again = CpuSet::parse_list(set->to_list());
  check(again && *again == *set, "a set comes back from its list");
  const auto members = set->members();
  check(members.size() == set->count() && set->empty() == members.empty(), "as many members as counted");
  check(members.empty() || members.back() < CpuSet::kMaxCpus, "no CPU is above the limit");
}

template <class Part>
void check_parts(const std::vector<Part>& parts, const CpuSet& machine) {
  CpuSet taken;
  for (const auto& part : parts) {
    check(!part.cpus.empty() && part.cpus.is_within(machine), "a part of the machine has CPUs of the machine");
    check((taken & part.cpus).empty(), "no CPU is in two parts");
    taken = taken | part.cpus;
  }
}

void check_gpu(const Gpu& gpu, const Topology& topology) {
  check(gpu.near.is_within(topology.cpus), "the CPUs that are near belong to the machine");
  check(bootstrap::normal_pci(gpu.pci) == gpu.pci, "an address is in its normal form");
  check(gpu.device.empty() || gpu.device.starts_with("/dev/"), "a device node is below /dev");
  check(gpu.uuid.empty() || bootstrap::is_gpu_uuid(gpu.uuid), "a UUID is one");
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  check(std::all_of(gpu.name.begin(), gpu.name.end(), printable), "a name is printable");
  if (gpu.numa) check(gpu.near == topology.numa_nodes.at(*gpu.numa).cpus, "a GPU is near its own node");
  if (gpu.package) check(gpu.near.is_within(topology.packages.at(*gpu.package).cpus), "and in its own package");
}

void check_topology(const Topology& topology) {
  check(!topology.cpus.empty(), "a machine has CPUs");
  check_parts(topology.packages, topology.cpus);
  check_parts(topology.numa_nodes, topology.cpus);
  for (const auto& node : topology.numa_nodes) {
    if (node.package) check(node.cpus.is_within(topology.packages.at(*node.package).cpus), "a node is in its package");
  }
  check(topology.gpus.size() <= bootstrap::kMaxGpus, "there are not more GPUs than allowed");
  for (const auto& gpu : topology.gpus) check_gpu(gpu, topology);
  // Addresses of one length are in the order of their text.
  const auto is_not_before = [](const Gpu& a, const Gpu& b) { return a.pci.size() == b.pci.size() && a.pci >= b.pci; };
  const auto found = std::adjacent_find(topology.gpus.begin(), topology.gpus.end(), is_not_before);
  check(found == topology.gpus.end(), "GPUs are in order, and each is there once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  check_set(CpuSet::parse_list(text));
  check_set(CpuSet::parse_mask(text));
  const auto started = std::chrono::steady_clock::now();
  const auto topology = bootstrap::parse_topology_text(text);
  check(std::chrono::steady_clock::now() - started < std::chrono::seconds(1), "reading takes less than a second");
  if (size > bootstrap::kMaxTopologyText) check(!topology, "a text that is too large is refused");
  if (topology) {
    check_topology(*topology);
    const auto again = bootstrap::parse_topology_text(topology_text(*topology));
    check(again && *again == *topology, "a topology comes back from its text");
  } else {
    check_message(topology.error());
  }
  return 0;
}
