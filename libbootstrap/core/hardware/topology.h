// Which CPUs each GPU of a node is near to: made from a source, or read from lines of text in a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/util/result.h"

namespace bootstrap {

enum class GpuVendor : std::uint8_t { kNvidia, kAmd, kIntel };

// Index into Topology::packages or numa_nodes; nothing where the machine does not show it.
using TopologyIndex = std::optional<std::uint32_t>;

struct Package {
  std::uint32_t number = 0;  // as Linux counts them
  CpuSet cpus;

  bool operator==(const Package&) const = default;
};

struct NumaNode {
  std::uint32_t number = 0;  // as Linux counts them
  TopologyIndex package;     // the one that holds its CPUs
  CpuSet cpus;               // never empty: nodes of memory alone (GH200's GPU memory) are left out

  bool operator==(const NumaNode&) const = default;
};

struct Gpu {
  std::string pci;  // "0000:1b:00.0", lower case, domain of at least four digits
  GpuVendor vendor = GpuVendor::kNvidia;
  std::string device;  // the device node that a process opens to use it, "/dev/nvidia0"; empty when not known
  std::string uuid;    // "GPU-1234...", empty when not known
  std::string name;    // model, for people; may be empty
  CpuSet near;         // CPUs that share its NUMA node, or its package where the node is not known; empty: not known
  TopologyIndex numa;
  TopologyIndex package;

  bool operator==(const Gpu&) const = default;
};

struct Topology {
  CpuSet cpus;  // of the machine
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Gpu> gpus;  // in order of PCI address, which is the order in which Slurm and CUDA count

  bool operator==(const Topology&) const = default;
};

inline constexpr std::size_t kMaxGpus = 256;  // MIG instances count, too: 16 GPUs with 7 each

// A GPU as a source describes it; near, numa and package of `gpu` are still empty.
struct FoundGpu {
  Gpu gpu;
  std::uint32_t device_class = 0;  // of the PCI device, as in gpu_vendor
  CpuSet local;                    // CPUs that the source calls local to it; empty: not known
};

// What all sources have in common: numbers and PCI addresses in order, each CPU in one package and one NUMA node, a
// place for each GPU. A GPU that is local to the whole of a machine with several packages or NUMA nodes has none.
Topology make_topology(CpuSet cpus, std::vector<Package> packages, std::vector<NumaNode> numa_nodes,
                       std::vector<FoundGpu> gpus);

// Of a PCI device that can be a GPU for computing, by vendor number and class (0x0302). make_topology leaves out VGA
// devices of AMD where there are other GPUs of AMD, since those are the consoles of some servers.
std::optional<GpuVendor> gpu_vendor(std::uint32_t vendor, std::uint32_t device_class);

// "00000000:1B:00.0", as NVIDIA's tools write it, as "0000:1b:00.0"; nothing when it is no address.
std::optional<std::string> normal_pci(std::string_view address);

// "GPU-5b6b..." and the like. Drivers write question marks for a UUID that they do not know yet.
bool is_gpu_uuid(std::string_view text);

// GPUs of the vendor whose lists Slurm set, in PCI order.
std::vector<Gpu> gpus_of(const Topology& topology, GpuVendor vendor);

inline constexpr std::string_view kTopologyTag = "slurm-bootstrap-topology 1";
inline constexpr std::size_t kMaxTopologyText = std::size_t{1} << 20;  // more is no node of a cluster

// One line each for the CPUs of the machine, each package, each NUMA node and each GPU; the last line is "end":
//
//   slurm-bootstrap-topology 1
//   cpus 0-223
//   package 0 0-55,112-167
//   numa 0 0-55,112-167
//   gpu 0000:1b:00.0 nvidia 0-55,112-167 /dev/nvidia0 GPU-5b6b... NVIDIA H100 80GB HBM3
//   end
//
// Of a GPU: PCI address, vendor, the CPUs near it, device node, UUID, and to the end of the line the model, which may
// be missing. "-" is a place, node or UUID that is not known.
std::string topology_text(const Topology& topology);

// The name of a model as it stands there: printable, and not too long.
std::string gpu_model(std::string_view name);

// An error names its line.
Result<Topology> parse_topology_text(std::string_view text);

}  // namespace bootstrap
