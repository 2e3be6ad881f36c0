// What is known about the ranks that mpirun starts: who they are from OMPI_COMM_WORLD_*, where from its PMIx server.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/mpirun_facts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/step/rank_layout_text.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kRankName = "OMPI_COMM_WORLD_RANK";
constexpr std::array<std::string_view, 5> kOwnNames{kRankName, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                                    "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK"};

Result<std::uint32_t> number(const Environment& environment, std::string_view name) {
  const auto text = environment.get(name);
  if (!text) return fail(ErrorCode::kMissing, cat({name, " is not set: this process is not a rank of mpirun"}));
  const auto value = parse_unsigned(*text, kMaxRanks);
  if (!value) return fail(ErrorCode::kInvalid, cat({name, "=", quoted(*text), " is not a number"}));
  return static_cast<std::uint32_t>(*value);
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
  // OMPI_COMM_WORLD_NODE_RANK, too, is a place among the processes of the node, in Open MPI's words.
  const std::pair<std::string_view, std::uint32_t*> wanted[] = {{kOwnNames[0], &self.rank},
                                                                {kOwnNames[1], &self.size},
                                                                {kOwnNames[2], &self.local_rank},
                                                                {kOwnNames[3], &self.local_size}};
  for (const auto& [name, value] : wanted) {
    const auto read = number(environment, name);
    if (!read) return fail(read.error());
    *value = *read;
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

Result<LayoutComponent> component_of(const std::vector<std::string>& hosts) {
  LayoutComponent component;
  std::map<std::string_view, NodeIndex> known;
  std::string list;
  for (const auto& host : hosts) {
    if (host.empty() || host.find_first_of(" \t,;/[]") != std::string::npos) {
      return fail(ErrorCode::kInvalid,
                  cat({"mpirun returned ", quoted(host), " as the host of a rank, which is not a host name"}));
    }
    const auto [entry, is_new] = known.try_emplace(host, static_cast<NodeIndex>(known.size()));
    if (is_new) {
      list += cat({list.empty() ? "" : ",", host});
      component.tasks_per_node.push_back(0);
    }
    ++component.tasks_per_node[entry->second];
    component.node_of_rank.push_back(entry->second);
  }
  auto nodes = HostList::parse(list);
  if (!nodes) return fail(nodes.error());
  component.nodes = std::move(*nodes);
  return component;
}

std::optional<std::string_view> handed_on(const Environment& environment, const StepId& id) {
  const auto text = environment.get(kHandedOnVariable);
  if (text && layout_is_for(*text, id.job, id.step)) return text;
  return std::nullopt;
}

std::string own_host(const Environment& environment, const MpirunContext& around) {
  const auto told = environment.get("PMIX_HOSTNAME");
  if (told) return std::string(*told);
  return around.host.empty() ? "localhost" : around.host;
}

Result<Layout> layout_of_mpirun(const Environment& environment, const Identity& self, const MpirunContext& around) {
  if (is_one_node(self)) {
    auto component = component_of(std::vector<std::string>(self.size, own_host(environment, around)));
    if (!component) return fail(component.error());
    return Layout::make({std::move(*component)});
  }
  if (const auto text = handed_on(environment, self.id)) {
    auto read = read_layout(*text, {}, {});
    if (!read) return fail(read.error());
    return Layout::make(read->components);
  }
  if (around.hosts.empty()) {
    return fail(
        ErrorCode::kMissing,
        "the hosts of the ranks are not known: mpirun started ranks on several nodes, and only its PMIx server has the "
        "hosts; call bootstrap_open(), or preload the library with SLURM_BOOTSTRAP_MPIRUN=ask");
  }
  auto component = component_of(around.hosts);
  if (!component) return fail(component.error());
  return Layout::make({std::move(*component)});
}

// What mpirun's server says of all ranks against what mpirun told this one.
Status check_place(const Layout& layout, const Identity& self) {
  if (layout.size() != self.size) {
    return fail(ErrorCode::kDisagreement, cat({"OMPI_COMM_WORLD_SIZE is ", std::to_string(self.size),
                                               ", but mpirun returned ", std::to_string(layout.size()), " hosts"}));
  }
  const auto& place = layout.place(self.rank);
  if (place.local_rank == self.local_rank && place.local_size == self.local_size) return {};
  return fail(ErrorCode::kMisplaced,
              cat({"OMPI_COMM_WORLD_* give local rank ", std::to_string(self.local_rank), " of ",
                   std::to_string(self.local_size), " for rank ", std::to_string(self.rank),
                   ", but by the hosts of the ranks it is number ", std::to_string(place.local_rank), " of the ",
                   std::to_string(place.local_size), " ranks on ", layout.host_of(self.rank)}));
}

}  // namespace

bool is_mpirun_name_space(std::string_view name_space) noexcept {
  return !name_space.empty() && !name_space.starts_with("slurm.pmix.");
}

StepId mpirun_id(std::string_view name_space) noexcept {
  StepId id;
  id.launcher = Launcher::kMpirun;
  if (const auto number = parse_unsigned(name_space, UINT32_MAX)) {
    id.job = static_cast<std::uint32_t>(*number >> 16U);
    id.step = static_cast<std::uint32_t>(*number & 0xffffU);
    return id;
  }
  const auto at = name_space.rfind('@');
  const auto step = at == std::string_view::npos ? std::nullopt : parse_unsigned(name_space.substr(at + 1), UINT32_MAX);
  id.job = fingerprint(step ? name_space.substr(0, at) : name_space);
  id.step = static_cast<std::uint32_t>(step.value_or(0));
  return id;
}

bool is_mpirun_rank(const Environment& environment) {
  return environment.has(kRankName) && is_mpirun_name_space(environment.get("PMIX_NAMESPACE").value_or(""));
}

Environment without_outer_step(const Environment& environment) {
  auto inner = environment;
  for (const auto& [name, value] : environment.all()) {
    if (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) inner.unset(name);
  }
  return inner;
}

std::vector<std::string> stale_mpirun_names(const Environment& environment) {
  std::vector<std::string> names;
  for (const auto name : kOwnNames) {
    if (environment.has(name)) names.emplace_back(name);
  }
  return names;
}

bool needs_hosts(const Environment& environment) {
  if (!is_mpirun_rank(environment)) return false;
  const auto self = read_identity(environment);
  return self && !is_one_node(*self) && !handed_on(environment, self->id);
}

Result<StepFacts> read_mpirun_facts(const Environment& environment, const MpirunContext& around) {
  const auto self = read_identity(environment);
  if (!self) return fail(self.error());
  auto layout = layout_of_mpirun(environment, *self, around);
  if (!layout) return fail(layout.error());
  const auto agrees = check_place(*layout, *self);
  if (!agrees) return fail(agrees.error());
  StepFacts facts;
  facts.id = self->id;
  facts.layout = std::move(*layout);
  facts.layout_source = LayoutSource::kMpirun;
  facts.local_ranks = {self->rank};
  facts.is_one_task = true;
  facts.environment = without_outer_step(environment);
  facts.gpu_list = read_visible_gpus(facts.environment);
  // A list that is there and empty shows a program no GPU at all, which is somebody's word, too.
  const auto& all = facts.environment.all();
  const bool has_list = std::any_of(kGpuListKinds.begin(), kGpuListKinds.end(),
                                    [&](const GpuListKind& kind) { return all.find(kind.variable) != all.end(); });
  if (!has_list && around.gpus > 0) facts.gpu_list = all_gpus(around.gpus);
  facts.has_gpus = facts.gpu_list.has_value();
  return facts;
}

std::string hand_on(const StepFacts& facts) {
  if (facts.layout_source != LayoutSource::kMpirun || facts.layout.node_count() < 2) return {};
  ComponentText component;
  component.job = facts.id.job;
  for (const auto& host : facts.layout.hosts()) component.nodes += cat({component.nodes.empty() ? "" : ",", host});
  component.tasks_per_node.resize(facts.layout.node_count());
  for (Rank rank = 0; rank < facts.layout.size(); ++rank) {
    const auto node = facts.layout.place(rank).node;
    ++component.tasks_per_node[node];
    component.node_of_rank.push_back(node);
  }
  return write_layout(facts.id.job, facts.id.step, {std::move(component)}, {.master_ip = {}, .with_nodes = true})
      .value_or("");
}

}  // namespace bootstrap
