// The variables that this project reads, each with its longest value.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/variables.h"

#include <vector>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint32_t kWord = 256;          // a number, a word, a host name
constexpr std::uint32_t kPath = 4096;         // PATH_MAX of Linux; also lists of interfaces and requests for GPUs
constexpr std::uint32_t kNodes = 65536;       // what Slurm writes about the nodes of a large step
constexpr std::uint32_t kUnlimited = 131072;  // Linux accepts no longer entry; for values that are only compared
constexpr std::uint32_t kGpuBytes = 33024;    // 256 GPUs (kMaxGpus) of 128 bytes (the longest name of a MIG instance)
constexpr std::uint32_t kGpus = 256;
constexpr std::uint32_t kPortEntries = 1024;

constexpr bool is_before(const KnownVariable& one, const KnownVariable& other) { return one.name < other.name; }

struct Limit {
  std::uint32_t bytes;
  std::uint32_t entries;
  std::string_view names;  // separated by blanks
};

// The variables of the table of settings are not among them: they have the limit kMaxSetting.
constexpr Limit kLimits[] = {
    {kWord, 0,
     "BOOTSTRAP_GPU CUDA_DEVICE_ORDER CUDA_MPS_ACTIVE_THREAD_PERCENTAGE GROUP_RANK GROUP_WORLD_SIZE "
     "JAX_COORDINATOR_PORT LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NCCL_TESTS_DEVICE NODE_RANK "
     "NVSHMEM_BOOTSTRAP_PMI OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK "
     "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PET_MASTER_PORT PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE "
     "PET_RDZV_BACKEND PET_STANDALONE PMIX_HOSTNAME PMIX_NAMESPACE PMIX_RANK PMI_FD RANK SLURMD_NODENAME "
     "SLURM_ACCEL_BIND SLURM_BOOTSTRAP_FAILURE SLURM_BOOTSTRAP_GIVEN_UP SLURM_BOOTSTRAP_GPU_BIND "
     "SLURM_BOOTSTRAP_LAUNCH_DEFAULT SLURM_BOOTSTRAP_STEP SLURM_BOOTSTRAP_SUPERVISOR SLURM_CPUS_ON_NODE "
     "SLURM_CPUS_PER_TASK SLURM_CPU_BIND_TYPE SLURM_DEBUG SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE "
     "SLURM_GPUS_ON_NODE SLURM_JOB_ID SLURM_JOB_START_TIME SLURM_JOB_USER SLURM_LOCALID SLURM_MPI_TYPE "
     "SLURM_NNODES SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_PMI2_SRUN_PORT SLURM_PROCID "
     "SLURM_RESTART_COUNT SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEP_ID SLURM_STEP_NUM_NODES "
     "SLURM_STEP_NUM_TASKS USER WORLD_SIZE"},
    {kWord, 64, "PMI_CONTROL_PORT"},
    {kPath, 0,
     "BOOTSTRAP_INIT_FILE CONDA_PREFIX GLOO_SOCKET_IFNAME JAX_COORDINATOR_ADDRESS NCCL_SOCKET_IFNAME "
     "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME OMP_NUM_THREADS PET_LOCAL_ADDR PET_MASTER_ADDR PET_RDZV_CONF "
     "PET_RDZV_ENDPOINT PET_RDZV_ID PET_REDIRECTS PET_TEE PMIX_SERVER_URI PMIX_SERVER_URI2 PMIX_SERVER_URI21 "
     "PMIX_SERVER_URI3 PMIX_SERVER_URI4 PMIX_SERVER_URI41 SLURM_BCAST SLURM_BOOTSTRAP_CPU_BIND "
     "SLURM_BOOTSTRAP_DECISION SLURM_CONF SLURM_CPU_BIND SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GRES_FLAGS "
     "SLURM_JOB_PARTITION SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_SHARDS_ON_NODE SLURM_TRES_BIND "
     "SLURM_TRES_PER_TASK SLURM_WORKING_DIR SUBMITIT_EXECUTOR UCX_NET_DEVICES VIRTUAL_ENV"},
    {kPath, kGpus, "BOOTSTRAP_GPUS BOOTSTRAP_PORTS JAX_LOCAL_DEVICE_IDS"},
    {8192, kPortEntries, "SLURM_STEP_RESV_PORTS"},
    {kNodes, 0,
     "SLURM_BOOTSTRAP_LAYOUT SLURM_CPU_BIND_LIST SLURM_JOB_NODELIST SLURM_STEP_NODELIST "
     "SLURM_STEP_TASKS_PER_NODE SLURM_TASKS_PER_NODE"},
    {kNodes, 1024, "PATH"},
    {16384, 256, "SLURM_BOOTSTRAP_EXPORTS"},
    {32768, 0, "SLURM_BOOTSTRAP_SETTINGS"},
    {kGpuBytes, kGpus,
     "BOOTSTRAP_GPU_UUIDS CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES "
     "SLURM_STEP_GPUS ZE_AFFINITY_MASK"},
    {kUnlimited, 0, "LD_PRELOAD SLURM_EXPORT_ENV SLURM_PMIX_MAPPING_SERV SRUN_EXPORT_ENV TF_CONFIG"},
};

constexpr std::size_t kVariableCount = [] {
  std::size_t count = 0;
  for (const auto& limit : kLimits) {
    count += 1 + static_cast<std::size_t>(std::count(limit.names.begin(), limit.names.end(), ' '));
  }
  return count;
}();

constexpr auto kKnownVariables = [] {
  std::array<KnownVariable, kVariableCount> all{};
  auto* next = all.begin();
  for (auto [bytes, entries, names] : kLimits) {
    while (!names.empty()) {
      const auto end = std::min(names.find(' '), names.size());
      *next++ = {names.substr(0, end), bytes, entries};
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  std::sort(all.begin(), all.end(), is_before);
  return all;
}();

constexpr std::string_view kOfComponents =
    "SLURM_GPUS_PER_TASK SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_TRES_PER_TASK";

// "SLURM_GPUS_PER_TASK" of "SLURM_GPUS_PER_TASK_HET_GROUP_12": sbatch and salloc add the number of the component. Only
// for the variables that any_component() reads: else a user could make 128 known names of each variable.
std::string_view without_component(std::string_view name) {
  constexpr std::string_view kGroupMark = "_HET_GROUP_";
  constexpr std::uint32_t kLastComponent = 127;  // Slurm has up to 128
  const auto at = name.rfind(kGroupMark);
  if (at == std::string_view::npos) return name;
  const auto number = name.substr(at + kGroupMark.size());
  const bool is_number = parse_unsigned(number, kLastComponent) && (number.size() == 1 || !number.starts_with('0'));
  const auto base = name.substr(0, at);
  return is_number && has_word(kOfComponents, base) ? base : name;
}

}  // namespace

bool KnownVariable::accepts(std::string_view value) const {
  if (value.size() > bytes) return false;
  const char separator = name == "PATH" ? ':' : ',';
  return entries == 0 || std::count(value.begin(), value.end(), separator) < entries;
}

std::optional<KnownVariable> find_known_variable(std::string_view name) {
  if (name.starts_with("SLURM_BOOTSTRAP")) {
    for (const auto& spec : setting_specs()) {
      if (spec.variable == name) return KnownVariable{name, kMaxSetting, 0, true};
    }
  }
  const auto base = without_component(name);
  const auto* const found =
      std::lower_bound(kKnownVariables.begin(), kKnownVariables.end(), KnownVariable{base, 0}, is_before);
  return found != kKnownVariables.end() && found->name == base ? std::optional(*found) : std::nullopt;
}

void read_entry(Environment& environment, std::string_view name, std::string_view value, UnknownVariables unknown) {
  const auto known = find_known_variable(name);
  if (!known && name.starts_with("SLURM_BOOTSTRAP_")) environment.add_unknown(name);
  if (!known && unknown == UnknownVariables::kSkip) return;
  if (!known || known->accepts(value)) return environment.add(name, value);
  if (!known->is_setting) return environment.refuse(name);
  environment.add(name, value.substr(0, known->bytes + 1));  // enough to show that the value is too long
}

Environment read_entries(const char* const* entries, UnknownVariables unknown) {
  Environment environment;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    read_entry(environment, entry.substr(0, equals), entry.substr(equals + 1), unknown);
  }
  return environment;
}

std::string describe_refused(const Environment& environment) {
  constexpr std::size_t kMostShown = 4;
  const auto& refused = environment.refused();
  if (refused.empty()) return {};
  std::vector<std::string> names;
  for (const auto& name : refused) {
    if (names.size() == kMostShown) break;
    const auto known = *find_known_variable(name);
    names.push_back(cat({name, " (limit: ", std::to_string(known.bytes), " bytes",
                         known.entries == 0 ? "" : cat({", ", std::to_string(known.entries), " entries"}), ")"}));
  }
  auto text = join(names, ", ");
  const auto more = refused.size() - names.size();
  if (more > 0) text.append(" and ").append(std::to_string(more)).append(" more");
  return cat({"ignored ", text, " from the environment of the step, because the value is too long; unset ",
              refused.size() == 1 ? "it" : "them", " or shorten the value"});
}

std::string describe_unknown(const Environment& environment) {
  if (environment.unknown().empty()) return {};
  std::vector<std::string> names;
  for (const auto& name : environment.unknown()) names.push_back(printable(name));
  return cat(
      {"slurm-bootstrap reads no variable ", join(names, ", "), "; man spank_bootstrap lists those that it reads"});
}

}  // namespace bootstrap
