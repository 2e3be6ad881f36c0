// The GPUs of a node, and those that Slurm gave to a step as the environment lists them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/util/environment.h"

namespace bootstrap {

enum class GpuVendor : std::uint8_t { kNvidia, kAmd, kIntel };

inline constexpr std::size_t kMaxGpus = 256;  // MIG instances count, too: 16 GPUs with 7 each

struct Gpu {
  std::string pci = {};  // "0000:1b:00.0", as normal_pci writes it
  GpuVendor vendor = GpuVendor::kNvidia;
  std::string device = {};                 // the file that a process opens to use it, "/dev/nvidia0"; empty: not known
  std::string uuid = {};                   // "GPU-1234...", empty: not known
  std::string name = {};                   // model, for people; may be empty
  std::optional<std::uint32_t> numa = {};  // its NUMA node, as Linux counts them
  CpuSet near = {};                        // the CPUs of that node; empty: not known
  CpuSet l3 = {};                          // those of them with its L3 cache; empty: it is near none, or not known
  CpuSet package = {};                     // those of the processor that holds them; empty: several do, or not known

  bool operator==(const Gpu&) const = default;
};

std::vector<Gpu> gpus_of(const std::vector<Gpu>& gpus, GpuVendor vendor);

// "00000000:1B:00.0", as NVIDIA's tools write it, as "0000:1b:00.0"; nullopt: no address.
std::optional<std::string> normal_pci(std::string_view address);

// How a vendor's runtime reads the list that Slurm sets for it.
struct GpuListKind {
  GpuVendor vendor;
  std::string_view variable;
  std::string_view order_variable;  // PCI_BUS_ID in it makes indices count in that order; empty: there is none
  bool is_ordered;                  // the runtime numbers the devices as the list does; else the list is only a set
};

// In the order of the search. Without AutoDetect= and Flags= Slurm sets all of them. On a node of another vendor than
// NVIDIA all of them then mean the same, and HIP reads CUDA_VISIBLE_DEVICES on top of its own list, so only one of them
// may be reordered.
inline constexpr std::array<GpuListKind, 3> kGpuListKinds{{
    {GpuVendor::kNvidia, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", true},
    {GpuVendor::kAmd, "ROCR_VISIBLE_DEVICES", "", true},
    {GpuVendor::kIntel, "ZE_AFFINITY_MASK", "", false},
}};

struct GpuList {
  const GpuListKind* kind = nullptr;
  std::vector<std::string> entries;  // as Slurm wrote them: indices, or UUIDs
  std::vector<std::uint32_t> ids;    // of each entry: index among all GPUs of the node; empty: not known
  bool has_uuids = false;            // "GPU-..." or "MIG-...", never turned into indices
  bool has_mig = false;              // a process can use one MIG instance, the first one of its list
  bool is_assumed = false;           // no list was given: all GPUs of the node

  std::string text() const;  // as Slurm wrote it
};

// All variables in which Slurm lists a task's GPUs; it renews or removes them at each step.
inline constexpr std::array<std::string_view, 5> kSlurmGpuVariables{
    "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"};

// True if the user's HIP_VISIBLE_DEVICES gives HIP other GPUs of AMD than all of them in Slurm's order. It counts from
// 0 in what ROCR_VISIBLE_DEVICES leaves, and ends at a number that is too large (rocclr/device/rocm/rocdevice.cpp of
// ROCm).
bool has_users_hip_list(const Environment& environment);

// Returns nullopt if the environment does not list the GPUs: the step has none, Slurm does not know their files, or the
// user has chosen among them (has_users_hip_list).
std::optional<GpuList> read_gpu_list(const Environment& environment);

// The same if another launcher than Slurm started the ranks: the list alone counts.
std::optional<GpuList> read_visible_gpus(const Environment& environment);

// "0,1,2" for three: without a list each process sees all NVIDIA GPUs of its node.
GpuList all_gpus(std::size_t count);

// The UUID in an entry of the list. Up to driver 470 the name of a MIG instance has the UUID of its GPU:
// "MIG-GPU-<uuid>/<instance>/<instance>".
std::string_view gpu_uuid(std::string_view entry);

// For each entry the GPU of the node that it means. `of_node` is in PCI order. A GPU that is not known has no place.
std::vector<Gpu> find_gpus(const GpuList& list, const std::vector<Gpu>& of_node);

// The file that a process opens to use a GPU of this list; empty: not known.
std::string device_of(const GpuList& list, const Gpu& gpu, std::size_t entry);

}  // namespace bootstrap
