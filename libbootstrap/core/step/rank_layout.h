// Which rank runs on which host, the local, node and cross ranks that follow from it, how messages name ranks, and the
// text in which srun hands the layout to the nodes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/step/host_list.h"
#include "core/util/result.h"

namespace bootstrap {

using Rank = std::uint32_t;
using NodeIndex = std::uint32_t;  // place of a node in a node list, not its node rank

// Sizes above which a text is garbage or an attack: environments are user input that slurmstepd reads.
inline constexpr std::size_t kMaxRanks = std::size_t{1} << 20;
inline constexpr std::size_t kMaxNodesOfStep = 16'384;  // in slurmstepd, or with several components
inline constexpr std::size_t kMaxComponents = 128;      // Slurm's MAX_HET_JOB_COMPONENTS

// "2x3,1" is {2, 2, 2, 1} if `times` is "x" and `end` is empty. Returns nullopt for other texts, and for more than
// `most` values.
std::optional<std::vector<std::uint32_t>> read_runs(std::string_view text, std::string_view times, std::string_view end,
                                                    std::size_t most);

// SLURM_STEP_TASKS_PER_NODE: "2(x3),1" is {2, 2, 2, 1}.
Result<std::vector<std::uint32_t>> parse_tasks_per_node(std::string_view text);

// Node of each rank as srun's --distribution deals them out: node by node, in turn, or in turn by `plane` tasks.
std::vector<NodeIndex> deal_block(const std::vector<std::uint32_t>& tasks_per_node);
std::vector<NodeIndex> deal_plane(const std::vector<std::uint32_t>& tasks_per_node, std::uint32_t plane);
inline std::vector<NodeIndex> deal_cyclic(const std::vector<std::uint32_t>& tasks_per_node) {
  return deal_plane(tasks_per_node, 1);
}

// One component of a heterogeneous step, or the whole of any other step.
struct LayoutComponent {
  std::vector<std::string> nodes;
  std::vector<std::uint32_t> tasks_per_node;  // in the order of `nodes`
  std::vector<NodeIndex> node_of_rank;        // by rank within the component
  std::uint32_t job = 0;                      // of a component, which may have its own; 0: it is the whole step
};

// What follows from the place of one rank. All counts are of the whole step, over all components.
struct Place {
  Rank rank = 0;
  std::uint32_t node = 0;        // place in Layout::hosts()
  std::uint32_t local_rank = 0;  // place among the ranks of the node, in order of rank
  std::uint32_t local_size = 0;  // ranks on the node
  std::uint32_t node_rank = 0;   // nodes in order of their lowest rank
  std::uint32_t cross_rank = 0;  // node rank among the nodes that have a rank with this local rank
  std::uint32_t cross_size = 0;  // number of such nodes
};

// "Slurm spreads the 4 tasks unevenly (1 to 3 on a node)".
std::string describe_spread(std::size_t tasks, std::uint32_t least, std::uint32_t most);

class Layout {
 public:
  // Components in order of rank. A host may take part in several components; it is one node then.
  static Result<Layout> make(const std::vector<LayoutComponent>& components);

  std::size_t size() const { return places_.size(); }
  std::size_t node_count() const { return hosts_.size(); }
  const std::vector<std::string>& hosts() const { return hosts_; }  // in order of first mention
  const Place& place(Rank rank) const { return places_[rank]; }     // precondition: rank < size()
  void set_local_rank(Rank rank, std::uint32_t local_rank) { places_[rank].local_rank = local_rank; }
  std::uint32_t most_on_a_node() const;  // ranks
  const std::string& host_of(Rank rank) const { return hosts_[places_[rank].node]; }
  std::vector<Rank> ranks_on(std::uint32_t node) const;  // ascending
  const std::string& host_by_node_rank(std::uint32_t node_rank) const { return hosts_[by_node_rank_[node_rank]]; }
  std::uint32_t node_by_node_rank(std::uint32_t node_rank) const { return by_node_rank_[node_rank]; }

 private:
  Status add_component(const LayoutComponent& component,
                       std::unordered_map<std::string_view, std::uint32_t>& node_of_host);
  void number_nodes();

  std::vector<std::string> hosts_;
  std::vector<Place> places_;
  std::vector<Rank> by_node_;         // all ranks, those of the first host first
  std::vector<std::uint32_t> first_;  // [node]: where its ranks begin in by_node_, and behind them the next one's
  std::vector<std::uint32_t> by_node_rank_;
};

// describe_spread() of a layout, with the option for an even spread. Empty: the spread is even, or cannot be.
std::string note_spread(const Layout& layout);

// "rank 5 (node002, local rank 1)".
std::string describe_rank(const Layout& layout, Rank rank);

// The same for several, ascending and not empty: "ranks 8-11 (all of node003), rank 13 (node004, local rank 1)",
// "all 32 ranks"; after eight items "and 40 more".
std::string name_ranks(const Layout& layout, const std::vector<Rank>& ranks);

std::string missing_ranks(const Layout& layout, const std::vector<Rank>& ranks);  // "missing: rank 5 (...)"

inline constexpr std::size_t kMaxLayoutText = 60000;  // below Environment::kMaxValue

// Tasks of one component as srun reports them.
struct ComponentText {
  std::uint32_t job = 0;                      // each component of a heterogeneous job has a job id of its own
  std::string nodes;                          // host list as Slurm wrote it
  std::vector<std::uint32_t> tasks_per_node;  // in the order of `nodes`
  std::vector<NodeIndex> node_of_rank;
};

// Where the ranks meet, as srun found out. Each is empty if it is not known or not needed.
struct MeetingAddresses {
  std::string ours;     // the address of the MASTER_ADDR that we choose
  std::string users;    // the address of the user's MASTER_ADDR
  std::string of_node;  // NodeAddr of the node of rank 0, if it is used in place of the name

  bool operator==(const MeetingAddresses&) const = default;
};

// "12.0/block", "12.0/cyclic", "12.0/plane:2", "12.0/map:2,0x3,1" (node of rank 0, of ranks 1 to 3, of rank 4); the
// node list and the counts are SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
// For several components "43.0/43;n[1-2];2x2;block/44;n3;1;block": each carries its job id, nodes and counts, since
// Slurm's variables hold only the sorted union. Behind "@" are the addresses that srun found, if any, as in
// "@10.0.0.1,10.1.0.1,10.0.0.1": nodes ask no name server.
Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const MeetingAddresses& meeting = {});

struct LayoutText {
  std::vector<LayoutComponent> components;
  MeetingAddresses meeting;
};

// Reads a text for which layout_is_for() is true. If the text has no nodes and counts, those of `whole` count. Refuses
// more than `max_ranks`, kMaxNodes or kMaxComponents before it builds anything.
Result<LayoutText> read_layout(std::string_view text, const LayoutComponent& whole, std::size_t max_ranks = kMaxRanks);

// True if the text is for this step, by its beginning alone: a text that an outer step left behind is ignored.
bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step);

}  // namespace bootstrap
