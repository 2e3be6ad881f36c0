// A topology as the lines of text that `slurm-bootstrap topology` writes and slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/hardware/topology.h"
#include "core/util/result.h"

namespace bootstrap {

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

// What is wrong is told with its line.
Result<Topology> parse_topology_text(std::string_view text);

}  // namespace bootstrap
