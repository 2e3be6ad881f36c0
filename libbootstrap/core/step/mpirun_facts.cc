// What is known about a rank that mpirun starts, from OMPI_COMM_WORLD_*.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kRankName = "OMPI_COMM_WORLD_RANK";
constexpr std::array<std::string_view, 5> kOwnNames{kRankName, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                                    "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK"};

Result<std::uint32_t> number(const Environment& environment, std::string_view name) {
  const auto text = environment.get(name);
  if (!text) return fail(ErrorCode::kMissing, cat({name, " is not set: this process is not a rank of mpirun"}));
  const auto value = parse_unsigned<std::uint32_t>(*text, kMaxRanks);
  if (!value) return fail(ErrorCode::kInvalid, cat({name, "=", quote(*text), " is not a number"}));
  return *value;
}

struct Identity {
  StepId id;
  Rank rank = 0;
  std::uint32_t size = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t local_size = 0;
};

Result<Identity> read_identity(const Environment& environment) {
  Identity self;
  self.id = mpirun_id(environment.get("PMIX_NAMESPACE").value_or(""));
  // Not OMPI_COMM_WORLD_NODE_RANK: to Open MPI it is another place among the processes of the node.
  std::uint32_t* const values[] = {&self.rank, &self.size, &self.local_rank, &self.local_size};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    const auto read = number(environment, kOwnNames[i]);
    if (!read) return fail(read.error());
    *values[i] = *read;
  }
  if (self.rank >= self.size || self.local_rank >= self.local_size || self.local_size > self.size) {
    return fail(ErrorCode::kDisagreement,
                cat({"OMPI_COMM_WORLD_* contradict each other: rank ", std::to_string(self.rank), " of ",
                     std::to_string(self.size), " and local rank ", std::to_string(self.local_rank), " of ",
                     std::to_string(self.local_size)}));
  }
  return self;
}

bool is_one_node(const Identity& self) { return self.local_size == self.size; }

std::string own_host(const Environment& environment, const MpirunContext& around) {
  const auto named = environment.get("PMIX_HOSTNAME");
  if (named) return std::string(*named);
  return around.host.empty() ? "localhost" : around.host;
}

// The layout has the ranks of all other nodes on one node of this name: which of them share a node is not known.
constexpr std::string_view kOtherHosts = "other-hosts";

Result<Layout> layout_of_mpirun(const Identity& self, const std::string& host) {
  LayoutComponent component;
  component.nodes = {host};
  component.tasks_per_node = {self.local_size};
  if (!is_one_node(self)) {
    component.nodes.emplace_back(kOtherHosts);
    component.tasks_per_node.push_back(self.size - self.local_size);
  }
  const Rank first = std::min(self.rank - std::min(self.rank, self.local_rank), self.size - self.local_size);
  for (Rank rank = 0; rank < self.size; ++rank) {
    component.node_of_rank.push_back(rank >= first && rank - first < self.local_size ? 0 : 1);
  }
  auto layout = Layout::make({std::move(component)});
  // Open MPI 5 may number the ranks of a node in another order (--rank-by, --map-by core). On one node the places of
  // all are known, in order of rank.
  if (layout && !is_one_node(self)) layout->set_local_rank(self.rank, self.local_rank);
  return layout;
}

// The environment without Slurm's variables of the step around mpirun, which differ from node to node.
Environment without_outer_step(const Environment& environment) {
  auto inner = environment;
  for (const auto& [name, value] : environment.all()) {
    if (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) inner.unset(name);
  }
  return inner;
}

}  // namespace

bool is_mpirun_name_space(std::string_view name_space) noexcept {
  return !name_space.empty() && !name_space.starts_with("slurm.pmix.");
}

StepId mpirun_id(std::string_view name_space) noexcept {
  StepId id;
  id.launcher = Launcher::kMpirun;
  if (const auto number = parse_unsigned<std::uint32_t>(name_space)) {
    id.job = *number >> 16U;
    id.step = *number & 0xffffU;
    return id;
  }
  const auto at = name_space.rfind('@');
  const auto text = at == std::string_view::npos ? std::string_view() : name_space.substr(at + 1);
  const auto step = parse_unsigned<std::uint32_t>(text);
  id.job = fingerprint(step ? name_space.substr(0, at) : name_space);
  id.step = step.value_or(0);
  return id;
}

bool is_mpirun_rank(const Environment& environment) {
  return environment.has(kRankName) && is_mpirun_name_space(environment.get("PMIX_NAMESPACE").value_or(""));
}

std::vector<std::string> stale_mpirun_names(const Environment& environment) {
  std::vector<std::string> names;
  for (const auto name : kOwnNames) {
    if (environment.has(name)) names.emplace_back(name);
  }
  return names;
}

Result<StepFacts> read_mpirun_facts(const Environment& environment, const MpirunContext& around) {
  const auto self = read_identity(environment);
  if (!self) return fail(self.error());
  auto layout = layout_of_mpirun(*self, own_host(environment, around));
  if (!layout) return fail(layout.error());
  StepFacts facts;
  facts.id = self->id;
  facts.layout = std::move(*layout);
  facts.layout_source = LayoutSource::kMpirun;
  facts.knows_hosts = is_one_node(*self);
  facts.ranks_here = {self->rank};
  facts.is_one_task = true;
  facts.environment = without_outer_step(environment);
  facts.gpu_list = read_visible_gpus(facts.environment);
  // An empty list hides all GPUs from a program, which may be intended.
  const auto& all = facts.environment.all();
  const bool has_list = std::any_of(kGpuListKinds.begin(), kGpuListKinds.end(),
                                    [&](const GpuListKind& kind) { return all.find(kind.variable) != all.end(); });
  if (!has_list && around.gpus > 0) facts.gpu_list = all_gpus(around.gpus);
  facts.has_gpus = facts.gpu_list.has_value();
  return facts;
}

}  // namespace bootstrap
