// What each task of a node gets to see of the step's GPUs: one order for all of them, and each task's view of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/gpu_assignment.h"
#include "core/hardware/gpu_list.h"
#include "core/hardware/topology.h"
#include "core/program/srun_arguments.h"
#include "core/settings/settings.h"

namespace bootstrap {

struct NodeGpus {
  GpuList list;
  GpuMode mode = GpuMode::kIndex;    // as asked for, or kNarrow for MIG; never kOff
  std::size_t tasks = 0;             // of this node
  std::vector<Gpu> gpus;             // by entry of the list: what it means, as far as that is known
  std::vector<std::uint32_t> order;  // entry at each position; Slurm's own order until the tasks' cores are known
  std::vector<std::string> devices;  // files to try in the task: those of the entries first, then others of the node
  std::vector<std::pair<std::string_view, std::string>> slurms;  // Slurm's other GPU variables, as the step has them
  bool is_untouched = false;     // the list stays as Slurm or the user set it: entry LOCAL_RANK is the task's own
  bool is_own_list = false;      // Slurm left this task nothing but its own GPUs
  UsersBind users_bind;          // the user gave srun --gpu-bind or one of its kin, which is obeyed
  bool srun_has_plugin = false;  // else nobody kept Slurm from binding GPUs by itself
  std::string_view remedy;       // the option of srun that ends the hiding: "--gpu-bind=none"

  const GpuListKind& kind() const { return *list.kind; }
  bool may_reorder() const { return !is_untouched && (kind().is_ordered || mode != GpuMode::kIndex); }
  bool has_users_list() const;  // CUDA's list is the user's, on top of Slurm's, and does not show what Slurm took
  bool order_matters() const;   // whether GPUs differ in place, so that the tasks' cores are worth to be asked for
  std::string ordered_list() const;
};

// What one task found out about its GPUs just before its program starts.
struct GpuVisibility {
  enum class Access : std::uint8_t { kOpen, kDenied, kUnknown };

  std::vector<Access> devices;    // of NodeGpus::devices; empty: not tried
  std::string list;               // of NodeGpus::list's variable, as Slurm left it for this task; empty: not set
  bool is_anothers_list = false;  // another plugin has written it since, and the user did not ask us for another
};

struct GpuView {
  std::string list;                        // value of the list variable
  std::uint32_t own = 0;                   // ordinal of the task's GPU in that list, as the vendor's runtime counts
  std::vector<std::uint32_t> group;        // ordinals of all that are its own
  std::vector<std::uint32_t> own_entries;  // the same as entries of NodeGpus::list; empty when that cannot be told
  std::vector<std::string> uuids;          // of its own, where the list has UUIDs
  bool is_as_planned = true;               // else Slurm left the task less, and its own variables stay as they are
  bool is_alone = false;  // ordinals do not go by LOCAL_RANK: the task is told that it is alone on its node
  std::string warning;    // one sentence; empty if there is nothing to say
};

std::string write_ordinals(const std::vector<std::uint32_t>& ordinals);  // "1,3"
std::string write_uuids(const GpuView& view);

// Puts the GPUs into the order that is nearest to the tasks' cores; by local rank, an empty set where not known.
void order_gpus(NodeGpus& plan, const std::vector<CpuSet>& cores, const Topology& topology);

// What a task sees if nothing is hidden from it.
GpuView view_of(const NodeGpus& plan, std::uint32_t local_rank);

// What it sees with what Slurm left it. Slurm's list, where it was narrowed, is widened again unless the user asked for
// it, or the devices cannot be opened.
GpuView view_of(const NodeGpus& plan, std::uint32_t local_rank, const GpuVisibility& sight);

// The CPUs near to what is the task's own; empty when not known.
CpuSet cores_near(const NodeGpus& plan, const GpuView& view);

}  // namespace bootstrap
