// The GPUs of a node, those that Slurm gave to a step as the environment lists them, and which task gets which.
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

// "00000000:1B:00.0", as NVIDIA's tools write it, as "0000:1b:00.0"; nothing when it is no address.
std::optional<std::string> normal_pci(std::string_view address);

// How a vendor's runtime reads the list that Slurm sets for it.
struct GpuListKind {
  GpuVendor vendor;
  std::string_view variable;
  std::string_view order_variable;  // PCI_BUS_ID in it makes indices count in that order; empty: there is none
  bool is_ordered;                  // the runtime numbers the devices as the list does; else the list is only a set
};

// In the order in which they are looked for: Slurm without AutoDetect= and Flags= sets all of them. On a node of
// another vendor than NVIDIA they all have the same meaning then, and HIP reads CUDA_VISIBLE_DEVICES on top of its own
// list, so that exactly one of them may be put into another order.
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

// AMD's GPUs, of which the user shows HIP others than all in Slurm's order: HIP_VISIBLE_DEVICES counts from 0 in what
// ROCR_VISIBLE_DEVICES leaves, and ends at a number that is too large (rocclr/device/rocm/rocdevice.cpp of ROCm).
bool has_users_hip_list(const Environment& environment);

// Nothing when the environment does not list the GPUs: none were given, Slurm does not know their files, or the user
// has chosen among them (has_users_hip_list).
std::optional<GpuList> read_gpu_list(const Environment& environment);

// The same where another launcher than Slurm started the ranks: the list alone counts.
std::optional<GpuList> read_visible_gpus(const Environment& environment);

// "0,1,2" for three: without a list each process sees all NVIDIA GPUs of its node.
GpuList all_gpus(std::size_t count);

// Of an entry of the list. MIG instances carry the UUID of their GPU in the form up to driver 470:
// "MIG-GPU-<uuid>/<instance>/<instance>".
std::string_view gpu_uuid(std::string_view entry);

// For each entry the GPU of the node that it means, of those in PCI order; a GPU without a place where that is not
// known.
std::vector<Gpu> find_gpus(const GpuList& list, const std::vector<Gpu>& of_node);

// The file that a process opens to use a GPU of this list; empty when not known.
std::string device_of(const GpuList& list, const Gpu& gpu, std::size_t entry);

inline constexpr std::uint32_t kNear = 0;            // all cores of the task are near: in its L3, or its NUMA node
inline constexpr std::uint32_t kSameNode = 10;       // all have another L3 in the GPU's NUMA node
inline constexpr std::uint32_t kSamePackage = 1000;  // all are elsewhere in its package
inline constexpr std::uint32_t kFar = 2000;          // all are in other packages, or the GPU's place is not known

// How far the cores of a task are from a GPU, in between for a task on several kinds of cores. A task whose cores are
// not known is as near to every GPU.
std::uint32_t distance(const CpuSet& task, const Gpu& gpu);

// By task, then by GPU.
using Distances = std::vector<std::vector<std::uint32_t>>;

// The order of the device list that all tasks of a node get. Position p holds GPU order[p], an index into the list as
// Slurm wrote it, and belongs to task p modulo the number of tasks:
//   tasks == GPUs   each task has the one at its own place
//   tasks <  GPUs   task t has t, t + tasks, t + 2 * tasks ...: equal groups; GPUs left over stand at the end
//   tasks >  GPUs   (shared) task t uses t modulo GPUs
// so that set_device(LOCAL_RANK) is right wherever there is a GPU for each task.
//
// Up to 64 GPUs, no exchange of two GPUs makes the sum of the distances of all pairs of a task and a GPU of its own
// smaller. With no more tasks than GPUs, and tasks that are each bound within one NUMA node, it is the least sum there
// is. Among equal sums the groups of tasks with several GPUs are of such as stand near to each other in `neighbours`,
// which names all GPUs. Where nothing is gained, Slurm's order stays. The same input gives the same order everywhere.
std::vector<std::uint32_t> assign_gpus(const Distances& distances, const std::vector<std::uint32_t>& neighbours);

// Indices of `gpus`, those of one package and NUMA node side by side, else in the order given.
std::vector<std::uint32_t> by_locality(const std::vector<Gpu>& gpus);

// Positions of the list that belong to `task`; the first one is its own, the others are its group.
std::vector<std::uint32_t> positions_of(std::uint32_t task, std::size_t tasks, std::size_t gpus);

}  // namespace bootstrap
