// The variables that this project reads, each with the longest value that it accepts.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/known_variables.h"

#include <algorithm>
#include <iterator>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint32_t kWord = 256;   // a number, a word, a host name
constexpr std::uint32_t kPath = 4096;  // PATH_MAX of Linux; also lists of interfaces and GPU requests
constexpr std::uint32_t kSetting = kMaxSetting;
constexpr std::uint32_t kNodes = 65536;       // what Slurm writes about the nodes of a large step
constexpr std::uint32_t kUnlimited = 131072;  // Linux accepts no longer entry; for values that are only compared
constexpr std::uint32_t kGpuBytes = 33024;    // 256 GPUs (kMaxGpus) of 128 bytes (the longest name of a MIG instance)
constexpr std::uint32_t kGpus = 256;
constexpr std::uint32_t kPortEntries = 1024;

// In ascending order of names.
constexpr KnownVariable kKnownVariables[] = {
    {"BOOTSTRAP_GPU", kWord},
    {"BOOTSTRAP_GPUS", kPath, kGpus},
    {"BOOTSTRAP_GPU_UUIDS", kGpuBytes, kGpus},
    {"BOOTSTRAP_INIT_FILE", kPath},
    {"CONDA_PREFIX", kPath},
    {"CUDA_DEVICE_ORDER", kWord},
    {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", kWord},
    {"CUDA_VISIBLE_DEVICES", kGpuBytes, kGpus},
    {"GLOO_SOCKET_IFNAME", kPath},
    {"GPU_DEVICE_ORDINAL", kGpuBytes, kGpus},
    {"GROUP_RANK", kWord},
    {"GROUP_WORLD_SIZE", kWord},
    {"HIP_VISIBLE_DEVICES", kGpuBytes, kGpus},
    {"JAX_COORDINATOR_ADDRESS", kPath},
    {"JAX_COORDINATOR_PORT", kWord},
    {"JAX_LOCAL_DEVICE_IDS", kPath, kGpus},
    {"LD_PRELOAD", kUnlimited},
    {"LOCAL_RANK", kWord},
    {"LOCAL_WORLD_SIZE", kWord},
    {"MASTER_ADDR", kWord},
    {"MASTER_PORT", kWord},
    {"NCCL_SOCKET_IFNAME", kPath},
    {"NCCL_TESTS_DEVICE", kWord},
    {"NODE_RANK", kWord},
    {"NVSHMEM_BOOTSTRAP_PMI", kWord},
    {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", kPath},
    {"OMPI_COMM_WORLD_LOCAL_RANK", kWord},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", kWord},
    {"OMPI_COMM_WORLD_NODE_RANK", kWord},
    {"OMPI_COMM_WORLD_RANK", kWord},
    {"OMPI_COMM_WORLD_SIZE", kWord},
    {"OMP_NUM_THREADS", kPath},
    {"PATH", kNodes, 1024},
    {"PET_LOCAL_ADDR", kPath},
    {"PET_MASTER_ADDR", kPath},
    {"PET_MASTER_PORT", kWord},
    {"PET_NNODES", kWord},
    {"PET_NODE_RANK", kWord},
    {"PET_NPROC_PER_NODE", kWord},
    {"PET_RDZV_BACKEND", kWord},
    {"PET_RDZV_CONF", kPath},
    {"PET_RDZV_ENDPOINT", kPath},
    {"PET_RDZV_ID", kPath},
    {"PET_REDIRECTS", kPath},
    {"PET_STANDALONE", kWord},
    {"PET_TEE", kPath},
    {"PMIX_HOSTNAME", kWord},
    {"PMIX_NAMESPACE", kWord},
    {"PMIX_RANK", kWord},
    {"PMIX_SERVER_URI", kPath},
    {"PMIX_SERVER_URI2", kPath},
    {"PMIX_SERVER_URI21", kPath},
    {"PMIX_SERVER_URI3", kPath},
    {"PMIX_SERVER_URI4", kPath},
    {"PMIX_SERVER_URI41", kPath},
    {"PMI_CONTROL_PORT", kWord, 64},
    {"PMI_FD", kWord},
    {"RANK", kWord},
    {"ROCR_VISIBLE_DEVICES", kGpuBytes, kGpus},
    {"SLURMD_NODENAME", kWord},
    {"SLURM_ACCEL_BIND", kWord},
    {"SLURM_BCAST", kPath},
    {"SLURM_BOOTSTRAP", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_ADDR", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_CLAIM", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_CPU", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_DEBUG", kWord},
    {"SLURM_BOOTSTRAP_DECISION", kPath},
    {"SLURM_BOOTSTRAP_EXPORTS", 16384, 256},
    {"SLURM_BOOTSTRAP_FAILURE", kWord},
    {"SLURM_BOOTSTRAP_FRAMEWORKS", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_GIVEN_UP", kWord},
    {"SLURM_BOOTSTRAP_GPU", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_GPU_BIND", kWord},
    {"SLURM_BOOTSTRAP_GPU_SHARE", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_GRACE", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_INTERFACE", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_LAUNCH_DEFAULT", kWord},
    {"SLURM_BOOTSTRAP_LAYOUT", kNodes},
    {"SLURM_BOOTSTRAP_PORT", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_PORT_RANGE", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_PRELOAD", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_SETTINGS", 32768},
    {"SLURM_BOOTSTRAP_SHARED_DIR", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_STEP", kWord},
    {"SLURM_BOOTSTRAP_TIMEOUT", kSetting, 0, true},
    {"SLURM_BOOTSTRAP_TIMING", kSetting, 0, true},
    {"SLURM_CONF", kPath},
    {"SLURM_CPUS_ON_NODE", kWord},
    {"SLURM_CPUS_PER_TASK", kWord},
    {"SLURM_CPU_BIND_LIST", kNodes},
    {"SLURM_CPU_BIND_TYPE", kWord},
    {"SLURM_DEBUG", kWord},
    {"SLURM_DISTRIBUTION", kWord},
    {"SLURM_DIST_PLANESIZE", kWord},
    {"SLURM_EXPORT_ENV", kUnlimited},
    {"SLURM_GPUS_ON_NODE", kWord},
    {"SLURM_GPUS_PER_TASK", kPath},
    {"SLURM_GPU_BIND", kPath},
    {"SLURM_GRES_FLAGS", kPath},
    {"SLURM_JOB_ID", kWord},
    {"SLURM_JOB_PARTITION", kPath},
    {"SLURM_JOB_START_TIME", kWord},
    {"SLURM_LOCALID", kWord},
    {"SLURM_MPI_TYPE", kWord},
    {"SLURM_NPROCS", kWord},
    {"SLURM_NTASKS", kWord},
    {"SLURM_NTASKS_PER_GPU", kPath},
    {"SLURM_NTASKS_PER_NODE", kWord},
    {"SLURM_NTASKS_PER_TRES", kPath},
    {"SLURM_PMI2_SRUN_PORT", kWord},
    {"SLURM_PMIX_MAPPING_SERV", kUnlimited},
    {"SLURM_PROCID", kWord},
    {"SLURM_RESTART_COUNT", kWord},
    {"SLURM_SHARDS_ON_NODE", kPath},
    {"SLURM_SRUN_COMM_HOST", kWord},
    {"SLURM_SRUN_COMM_PORT", kWord},
    {"SLURM_STEP_GPUS", kGpuBytes, kGpus},
    {"SLURM_STEP_ID", kWord},
    {"SLURM_STEP_NODELIST", kNodes},
    {"SLURM_STEP_NUM_NODES", kWord},
    {"SLURM_STEP_NUM_TASKS", kWord},
    {"SLURM_STEP_RESV_PORTS", 8192, kPortEntries},
    {"SLURM_STEP_TASKS_PER_NODE", kNodes},
    {"SLURM_TRES_BIND", kPath},
    {"SLURM_TRES_PER_TASK", kPath},
    {"SLURM_WORKING_DIR", kPath},
    {"SRUN_EXPORT_ENV", kUnlimited},
    {"SUBMITIT_EXECUTOR", kPath},
    {"TF_CONFIG", kUnlimited},
    {"UCX_NET_DEVICES", kPath},
    {"USER", kWord},
    {"VIRTUAL_ENV", kPath},
    {"WORLD_SIZE", kWord},
    {"ZE_AFFINITY_MASK", kGpuBytes, kGpus},
};

constexpr bool is_before(const KnownVariable& one, const KnownVariable& other) { return one.name < other.name; }
static_assert(std::is_sorted(std::begin(kKnownVariables), std::end(kKnownVariables), is_before));

// "SLURM_GPUS_PER_TASK" of "SLURM_GPUS_PER_TASK_HET_GROUP_12": sbatch and salloc add the number of the component.
std::string_view without_component(std::string_view name) {
  constexpr std::string_view kGroupMark = "_HET_GROUP_";
  constexpr std::size_t kDigits = 3;  // Slurm has up to 128 components
  const auto at = name.rfind(kGroupMark);
  if (at == std::string_view::npos) return name;
  const auto number = name.substr(at + kGroupMark.size());
  const bool is_number =
      !number.empty() && number.size() <= kDigits && std::all_of(number.begin(), number.end(), is_digit);
  return is_number ? name.substr(0, at) : name;
}

}  // namespace

bool KnownVariable::accepts(std::string_view value) const {
  if (value.size() > bytes) return false;
  const char separator = name == "PATH" ? ':' : ',';
  return entries == 0 || std::count(value.begin(), value.end(), separator) < entries;
}

const KnownVariable* find_known_variable(std::string_view name) {
  const auto base = without_component(name);
  const auto* const found =
      std::lower_bound(std::begin(kKnownVariables), std::end(kKnownVariables), KnownVariable{base, 0}, is_before);
  return found != std::end(kKnownVariables) && found->name == base ? found : nullptr;
}

void read_entry(Environment& environment, std::string_view name, std::string_view value, UnknownVariables unknown) {
  const auto* const known = find_known_variable(name);
  if (known == nullptr && unknown == UnknownVariables::kSkip) return;
  if (known == nullptr || known->accepts(value)) return environment.add(name, value);
  if (!known->is_setting) return environment.refuse(name);
  environment.add(name, value.substr(0, known->bytes + 1));  // as much as shows that the value is too long
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
  std::string names;
  for (std::size_t i = 0; i < std::min(refused.size(), kMostShown); ++i) {
    const auto& known = *find_known_variable(refused[i]);
    names += cat({i == 0 ? "" : ", ", refused[i], " (limit: ", std::to_string(known.bytes), " bytes",
                  known.entries == 0 ? "" : cat({", ", std::to_string(known.entries), " entries"}), ")"});
  }
  if (refused.size() > kMostShown) names += cat({" and ", std::to_string(refused.size() - kMostShown), " more"});
  return cat({"ignored ", names, " from the environment of the step, because the value is too long; unset ",
              refused.size() == 1 ? "it" : "them", " or shorten the value"});
}

}  // namespace bootstrap
