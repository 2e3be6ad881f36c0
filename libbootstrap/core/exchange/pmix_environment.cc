// Checks that the PMIx variables in an environment are those of this rank, before a call to the server.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/pmix_environment.h"

#include <array>

#include "core/step/step_facts.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string_view advice(const StepId& id) {
  return id.launcher == Launcher::kMpirun ? "start the program with mpirun" : "start the program with srun --mpi=pmix";
}

// Slurm's plugin names the namespace after job and step; in a heterogeneous job after the first component's job.
std::string expected(const StepId& id) {
  return id.launcher == Launcher::kMpirun ? to_string(id) : cat({"slurm.pmix.", to_string(id)});
}

// Newest first: a client uses the newest that it supports, and servers set all to the same address.
constexpr std::array<std::string_view, 6> kAddresses = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                                        "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"};

std::optional<std::string_view> server_address(const Environment& environment) {
  for (const auto name : kAddresses) {
    if (const auto value = environment.get(name)) return value;
  }
  return {};
}

}  // namespace

std::optional<std::uint16_t> port_of_server(std::string_view address) {
  const auto protocol = address.find(";tcp");
  const auto colon = address.rfind(':');
  if (protocol == std::string_view::npos || colon == std::string_view::npos) return {};
  const auto port = parse_unsigned<std::uint16_t>(address.substr(colon + 1));
  return port == 0 ? std::nullopt : port;
}

Result<PmixServer> check_pmix_environment(const Environment& environment, const StepId& id, Rank rank) {
  const auto name_space = environment.get("PMIX_NAMESPACE");
  const auto address = server_address(environment);
  if (!name_space || !address) {
    return fail(ErrorCode::kMissing, cat({"this step has no PMIx (", name_space ? "PMIX_SERVER_URI" : "PMIX_NAMESPACE",
                                          " is not set): ", advice(id)}));
  }
  const bool from_mpirun = id.launcher == Launcher::kMpirun;
  const bool is_own =
      from_mpirun ? is_mpirun_name_space(*name_space) && mpirun_id(*name_space) == id : *name_space == expected(id);
  if (!is_own) {
    return fail(ErrorCode::kMissing,
                cat({"this step has no PMIx (PMIX_NAMESPACE is ", quote(*name_space), ", but would be ", expected(id),
                     " in this step: the PMIX_* variables belong to another step or launcher): ", advice(id)}));
  }
  const auto pmix_rank = environment.get("PMIX_RANK").value_or("");
  if (pmix_rank != std::to_string(rank)) {
    return fail(ErrorCode::kDisagreement,
                cat({"PMIX_RANK is ", quote(pmix_rank), ", but ", from_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID",
                     " is ", std::to_string(rank), ": one of them was changed; ", advice(id)}));
  }
  // slurmstepd sets the variable in all tasks from some release after 22.05 on, whatever --export is. On a release with
  // the repair but without the variable, the nodes wait once for each other without need.
  return PmixServer{.name_space = std::string(*name_space),
                    .port = port_of_server(*address).value_or(0),
                    .from_mpirun = from_mpirun,
                    .loses_early_messages = !from_mpirun && !environment.has("SLURM_JOB_START_TIME")};
}

}  // namespace bootstrap
