// The layout as one short environment value, SLURM_BOOTSTRAP_LAYOUT. srun, which knows the rank order of every
// distribution, passes it on to the nodes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

inline constexpr std::size_t kMaxLayoutText = 60000;  // below Environment::kMaxValue

// Tasks of one component as srun reports them.
struct ComponentText {
  std::uint32_t job = 0;                      // each component of a heterogeneous job has a job id of its own
  std::string nodes;                          // host list as Slurm wrote it
  std::vector<std::uint32_t> tasks_per_node;  // in the order of `nodes`
  std::vector<NodeIndex> node_of_rank;
};

// "12.0/block", "12.0/cyclic", "12.0/plane:2", "12.0/map:2,0x3,1" (node of rank 0, of ranks 1 to 3, of rank 4); the
// node list and the counts are SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
// For several components "43.0/43;n[1-2];2x2;block/44;n3;1;block": each carries its job id, nodes and counts, since
// Slurm's variables hold only the sorted union. Behind "@" stands what srun found to be the address of MASTER_ADDR, if
// it did: nodes ask no name server.
struct LayoutNotes {
  std::string_view master_ip;
  bool with_nodes = false;  // a single component carries nodes and counts, too
};
Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const LayoutNotes& notes);

struct LayoutText {
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  std::vector<LayoutComponent> components;
  std::vector<std::uint32_t> component_jobs;  // parallel to `components`; empty for a single one
  std::string master_ip;                      // empty: not known
};

// `nodes` and `tasks_per_node` stand in where the text leaves them out. Refuses what is larger than `max_ranks`,
// kMaxNodes or kMaxComponents before it makes anything of it.
Result<LayoutText> read_layout(std::string_view text, const HostList& nodes,
                               const std::vector<std::uint32_t>& tasks_per_node, std::size_t max_ranks = kMaxRanks);

// Which step a layout text is for, without reading the rest: a text that an outer step left behind is passed over.
bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step);

}  // namespace bootstrap
