// A step of one node without Slurm: a PMIx server as slurmstepd has one, and ranks that find the environment of a task.
// exchange_server RANKS PROGRAM ARGUMENTS...; its exit is the worst of the ranks'.
// SPDX-License-Identifier: Apache-2.0
#include <pmix.h>
#include <pmix_server.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

namespace {

constexpr const char* kNamespace = "slurm.pmix.1.0";

// All ranks are here, so what they brought is what all get. PMIx keeps `data` for itself.
pmix_status_t fence(const pmix_proc_t* /*ranks*/, size_t /*count*/, const pmix_info_t* /*info*/, size_t /*infos*/,
                    char* data, size_t bytes, pmix_modex_cbfunc_t done, void* argument) {
  char* copy = static_cast<char*>(std::malloc(bytes + 1));
  if (copy == nullptr) return PMIX_ERR_NOMEM;
  if (bytes > 0) std::memcpy(copy, data, bytes);
  done(
      PMIX_SUCCESS, copy, bytes, argument, [](void* memory) { std::free(memory); }, copy);
  return PMIX_SUCCESS;
}

pmix_status_t client_is_known(const pmix_proc_t* /*rank*/, void* /*object*/, pmix_op_cbfunc_t /*done*/,
                              void* /*argument*/) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_info_t text_info(const char* key, const std::string& text) {
  pmix_info_t info;
  const char* value = text.c_str();
  PMIX_INFO_LOAD(&info, key, value, PMIX_STRING);
  return info;
}

pmix_info_t number_info(const char* key, std::uint32_t number) {
  pmix_info_t info;
  PMIX_INFO_LOAD(&info, key, &number, PMIX_UINT32);
  return info;
}

void is_done(pmix_status_t status, void* promise) {
  static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
}

// Calls of the server's interface answer by callback, unless they are done at once.
template <class Call>
bool succeeds(const char* what, Call call) {
  std::promise<pmix_status_t> promise;
  pmix_status_t status = call(is_done, &promise);
  if (status == PMIX_SUCCESS) status = promise.get_future().get();
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return true;
  (void)std::fprintf(stderr, "exchange_server: %s: %s\n", what, PMIx_Error_string(status));
  return false;
}

bool start_server(const std::string& folder) {
  static pmix_server_module_t module{};
  module.client_connected = client_is_known;
  module.client_finalized = client_is_known;
  module.fence_nb = fence;
  pmix_info_t info[] = {text_info(PMIX_SERVER_TMPDIR, folder), text_info(PMIX_SYSTEM_TMPDIR, folder)};
  return PMIx_server_init(&module, info, 2) == PMIX_SUCCESS;
}

bool register_step(std::uint32_t ranks) {
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  std::string list;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) list += (rank == 0 ? "" : ",") + std::to_string(rank);
  char* node_map = nullptr;
  char* rank_map = nullptr;
  (void)PMIx_generate_regex(host, &node_map);
  (void)PMIx_generate_ppn(list.c_str(), &rank_map);
  std::vector<pmix_info_t> info = {number_info(PMIX_UNIV_SIZE, ranks), number_info(PMIX_JOB_SIZE, ranks),
                                   number_info(PMIX_LOCAL_SIZE, ranks), text_info(PMIX_LOCAL_PEERS, list)};
  info.resize(6);
  PMIX_INFO_LOAD(&info[4], PMIX_NODE_MAP, node_map, PMIX_REGEX);
  PMIX_INFO_LOAD(&info[5], PMIX_PROC_MAP, rank_map, PMIX_REGEX);
  return succeeds("the namespace", [&](pmix_op_cbfunc_t done, void* argument) {
    return PMIx_server_register_nspace(kNamespace, static_cast<int>(ranks), info.data(), info.size(), done, argument);
  });
}

void set_task_environment(std::uint32_t rank, std::uint32_t ranks) {
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(ranks);
  const std::pair<const char*, std::string> variables[] = {{"SLURM_JOB_ID", "1"},
                                                           {"SLURM_STEP_ID", "0"},
                                                           {"SLURM_PROCID", rank_text},
                                                           {"SLURM_LOCALID", rank_text},
                                                           {"SLURM_NODEID", "0"},
                                                           {"SLURM_NPROCS", size_text},
                                                           {"SLURM_NTASKS", size_text},
                                                           {"SLURM_STEP_NUM_TASKS", size_text},
                                                           {"SLURM_STEP_NODELIST", host},
                                                           {"SLURM_STEP_NUM_NODES", "1"},
                                                           {"SLURM_STEP_TASKS_PER_NODE", size_text},
                                                           {"SLURM_DISTRIBUTION", "block"},
                                                           {"SLURMD_NODENAME", host}};
  for (const auto& [name, value] : variables) (void)::setenv(name, value.c_str(), 1);
}

pid_t start_rank(std::uint32_t rank, std::uint32_t ranks, char** command) {
  pmix_proc_t self{};
  PMIX_LOAD_PROCID(&self, kNamespace, rank);
  const bool is_known = succeeds("a rank", [&](pmix_op_cbfunc_t done, void* argument) {
    return PMIx_server_register_client(&self, ::getuid(), ::getgid(), nullptr, done, argument);
  });
  char** environment = nullptr;
  if (!is_known || PMIx_server_setup_fork(&self, &environment) != PMIX_SUCCESS) return -1;
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (char** variable = environment; variable != nullptr && *variable != nullptr; ++variable) ::putenv(*variable);
  set_task_environment(rank, ranks);
  (void)::execvp(command[0], command);
  std::perror(command[0]);
  ::_exit(127);
}

}  // namespace

int main(int count, char** words) {
  const auto ranks = count < 3 ? 0U : static_cast<std::uint32_t>(std::atoi(words[1]));
  if (ranks == 0) {
    (void)std::fprintf(stderr, "usage: exchange_server RANKS PROGRAM ARGUMENTS...\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "exchange_server.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr || !start_server(folder) || !register_step(ranks)) return 2;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (start_rank(rank, ranks, words + 2) < 0) return 2;
  }
  int worst = 0;
  int status = 0;
  while (::wait(&status) > 0) {
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  (void)PMIx_server_finalize();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return worst;
}
