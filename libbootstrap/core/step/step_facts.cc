// What is known about a step before anything is decided: gathered by the plugin or read from SLURM_* variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <utility>
#include <vector>

#include "core/settings/settings.h"
#include "core/step/mpirun_facts.h"
#include "core/util/text.h"

namespace bootstrap {
bool has_gpus(const Environment& environment) { return environment.has("SLURM_STEP_GPUS"); }

Result<StepId> read_step_id(const Environment& environment) {
  const auto job = environment.require_number("SLURM_JOB_ID");
  if (!job) return fail(job.error());
  const auto step = environment.require_number("SLURM_STEP_ID");
  if (!step) return fail(step.error());
  StepId id{.job = *job, .step = *step};
  if (environment.has("SLURM_RESTART_COUNT")) {
    const auto restart = environment.require_number("SLURM_RESTART_COUNT");
    if (!restart) return fail(restart.error());
    id.restart = *restart;
  }
  return id;
}

namespace {

// Slurm reserves a port for each task of a node, and a few more.
constexpr std::size_t kMostReservedPorts = 4096;

// "12000-12003,12007": up to the first entry that is no port or range.
std::vector<std::uint16_t> read_ports(std::string_view text) {
  std::vector<std::uint16_t> ports;
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto low = parse_unsigned(item.substr(0, dash), kMaxPort);
    const auto high = dash == std::string_view::npos ? low : parse_unsigned(item.substr(dash + 1), kMaxPort);
    if (!low || *low < kMinPort || !high || *high < *low) break;
    for (auto port = *low; port <= *high && ports.size() < kMostReservedPorts; ++port) {
      ports.push_back(static_cast<std::uint16_t>(port));
    }
  }
  return ports;
}

}  // namespace

// On HPE Cray EX the first port is PMI_CONTROL_PORT. Slurm's plugin for Cray's PMI takes it, and sets the variable in
// the tasks alone.
std::optional<std::vector<std::uint16_t>> read_reserved_ports(const Environment& environment) {
  const auto reserved = environment.get("SLURM_STEP_RESV_PORTS");
  if (!reserved) return std::nullopt;
  auto ports = read_ports(*reserved);
  if (ports.empty()) return ports;
  if (environment.get("SLURM_MPI_TYPE") == "cray_shasta") ports.erase(ports.begin());
  std::vector<bool> is_taken(kMaxPort + 1);
  for (const auto port : read_ports(environment.get("PMI_CONTROL_PORT").value_or(""))) is_taken[port] = true;
  std::erase_if(ports, [&](auto port) { return is_taken[port]; });
  return ports.empty() ? std::nullopt : std::optional(std::move(ports));
}

Result<StepFacts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local) {
  auto found = find_layout(environment, id, local);
  if (!found) return fail(found.error());
  StepFacts facts;
  facts.id = id;
  facts.layout = std::move(found->layout);
  facts.layout_source = found->source;
  facts.local_ranks = std::move(found->local_ranks);
  facts.has_gpus = has_gpus(environment);
  facts.gpu_list = read_gpu_list(environment);
  facts.reserved_ports = read_reserved_ports(environment);
  facts.environment = environment;
  facts.master_ip = std::move(found->master_ip);
  return facts;
}

Result<StepFacts> read_task_facts(const Environment& environment, const MpirunContext& around) {
  if (is_mpirun_rank(environment)) return read_mpirun_facts(environment, around);
  const auto id = read_step_id(environment);
  if (!id) return fail(id.error());
  if (!is_normal_step(id->step)) {
    return fail(ErrorCode::kMissing,
                cat({"this process is in the batch or interactive step of job ", std::to_string(id->job),
                     ", which has no ranks; start the program with srun"}));
  }
  const auto rank = environment.require_number("SLURM_PROCID");
  if (!rank) return fail(rank.error());
  LocalTasks local;
  local.host = environment.get("SLURMD_NODENAME").value_or("");
  local.ranks = {*rank};
  local.local_id = environment.number("SLURM_LOCALID");
  // SLURM_NPROCS is the old name that srun sets to the tasks of the component alone.
  local.component_size = environment.number("SLURM_NPROCS");
  auto facts = read_facts(environment, *id, local);
  if (facts) facts->is_one_task = true;
  return facts;
}

}  // namespace bootstrap
