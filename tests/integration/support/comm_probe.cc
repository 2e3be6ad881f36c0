// One rank that makes a communicator, or unique ids, as the command line says, and prints the result.
// SPDX-License-Identifier: Apache-2.0
//
//   comm_probe [--group world|node|cross|LISTS] [--roots N] [--ids N] [--timeout-ms T] [--device D] [--nonblocking]
//              [--config] [--absent RANK] [--stall RANK] [--linger SECONDS]
//
// LISTS are "2,0;3,5": a rank uses the list that contains it, if any. --absent: this rank sleeps and makes no call.
// --stall: this rank agrees to the communicator, and its NCCL never begins. --linger: a failed rank lives on for
// SECONDS. Writes "rank R: place of size, sum S",
// "rank R: in no group" or "rank R: ids HASH ...", and after a failure "rank R after T ms: sentence" to standard error.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "nccl_double.h"

namespace {

struct Wanted {
  std::string group = "world";
  bootstrap_comm_options_t options = BOOTSTRAP_COMM_OPTIONS_INIT;
  bool has_config = false;
  int ids = 0;
  int absent = -1;
  int stalls = -1;
  int linger = 0;
};

Wanted read_arguments(int count, char** arguments) {
  Wanted wanted;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--nonblocking") {
      wanted.options.nonblocking = 1;
      continue;
    }
    if (name == "--config") {
      wanted.has_config = true;
      continue;
    }
    const char* const value = i + 1 < count ? arguments[++i] : "";
    if (name == "--group") wanted.group = value;
    if (name == "--roots") wanted.options.roots = std::atoi(value);
    if (name == "--timeout-ms") wanted.options.timeout_ms = std::atoi(value);
    if (name == "--device") wanted.options.device = std::atoi(value);
    if (name == "--ids") wanted.ids = std::atoi(value);
    if (name == "--absent") wanted.absent = std::atoi(value);
    if (name == "--stall") wanted.stalls = std::atoi(value);
    if (name == "--linger") wanted.linger = std::atoi(value);
  }
  return wanted;
}

std::vector<int> own_list(const std::string& lists, int rank) {
  const char* next = lists.c_str();
  while (*next != '\0') {
    std::vector<int> list;
    bool is_mine = false;
    for (; *next != '\0' && *next != ';'; next += *next == ',') {
      char* end = nullptr;
      list.push_back(static_cast<int>(std::strtol(next, &end, 10)));
      is_mine = is_mine || list.back() == rank;
      next = end;
    }
    if (is_mine) return list;
    next += *next == ';';
  }
  return {};
}

// A newer NCCL's configuration with members that the library does not know. It is destroyed before NCCL reads its copy.
bootstrap_status_t make_with_config(bootstrap_t* job, Wanted wanted, ncclComm_t* comm);

bootstrap_status_t make(bootstrap_t* job, const Wanted& wanted, ncclComm_t* comm) {
  if (wanted.has_config) return make_with_config(job, wanted, comm);
  if (wanted.group == "world") return bootstrap_nccl_comm(job, BOOTSTRAP_WORLD, &wanted.options, comm);
  if (wanted.group == "node") return bootstrap_nccl_comm(job, BOOTSTRAP_NODE, &wanted.options, comm);
  if (wanted.group == "cross") return bootstrap_nccl_comm(job, BOOTSTRAP_CROSS, &wanted.options, comm);
  const auto list = own_list(wanted.group, bootstrap_rank(job));
  return bootstrap_nccl_comm_ranks(job, list.data(), static_cast<int>(list.size()), &wanted.options, comm);
}

bootstrap_status_t make_with_config(bootstrap_t* job, Wanted wanted, ncclComm_t* comm) {
  struct Newer {
    ncclConfig_t known{sizeof(Newer), 0xcafebeef, 23000, 0};
    int more[8] = {};
  } config;
  wanted.has_config = false;
  wanted.options.nccl_config = &config;
  return make(job, wanted, comm);
}

// Prints a hash, since the ids are secrets.
std::string hash_of(const bootstrap_unique_id_t& id) {
  return std::to_string(std::hash<std::string>()(std::string(id.internal, sizeof id.internal)));
}

bootstrap_status_t make_ids(bootstrap_t* job, const Wanted& wanted, std::string& text) {
  std::vector<bootstrap_unique_id_t> ids(static_cast<std::size_t>(wanted.ids));
  const auto group = wanted.group == "node"    ? BOOTSTRAP_NODE
                     : wanted.group == "cross" ? BOOTSTRAP_CROSS
                                               : BOOTSTRAP_WORLD;
  const bool is_list = wanted.group.find_first_of("0123456789") != std::string::npos;
  const auto list = is_list ? own_list(wanted.group, bootstrap_rank(job)) : std::vector<int>();
  const auto status =
      is_list ? bootstrap_nccl_unique_ids_ranks(job, list.data(), static_cast<int>(list.size()), ids.data(), wanted.ids)
              : bootstrap_nccl_unique_ids(job, group, ids.data(), wanted.ids);
  text = "ids";
  for (const auto& id : ids) text += " " + hash_of(id);
  return status;
}

// A function of the NCCL that the library has loaded: this program is not linked with NCCL.
template <class Function>
Function* nccl(const char* name) {
  void* library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = ::dlopen("librccl.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
  if (found == nullptr) std::fprintf(stderr, "the NCCL of this process has no %s\n", name), std::exit(3);
  return reinterpret_cast<Function*>(found);
}

std::string use(bootstrap_t* job, ncclComm_t comm) {
  if (comm == nullptr) return "in no group";
  int rank = -1;
  int size = -1;
  auto sum = static_cast<float>(bootstrap_rank(job));
  const auto get_async_error = nccl<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  auto state = nccl<decltype(ncclAllReduce)>("ncclAllReduce")(&sum, &sum, 1, ncclFloat32, ncclSum, comm, nullptr);
  while (state == ncclInProgress && get_async_error(comm, &state) == ncclSuccess) ::usleep(1000);
  const bool is_right = state == ncclSuccess &&
                        nccl<decltype(ncclCommUserRank)>("ncclCommUserRank")(comm, &rank) == ncclSuccess &&
                        nccl<decltype(ncclCommCount)>("ncclCommCount")(comm, &size) == ncclSuccess;
  if (!is_right) return "NCCL failed";
  nccl<decltype(ncclCommDestroy)>("ncclCommDestroy")(comm);
  return std::to_string(rank) + " of " + std::to_string(size) + ", sum " + std::to_string(static_cast<int>(sum));
}

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = read_arguments(count, arguments);
  bootstrap_t* job = nullptr;
  if (bootstrap_open(&job, nullptr) != BOOTSTRAP_OK) {
    std::fprintf(stderr, "%s\n", bootstrap_last_error());
    return 1;
  }
  const int rank = bootstrap_rank(job);
  if (rank == wanted.absent) return static_cast<int>(::sleep(600));
  if (rank == wanted.stalls) ::setenv("NCCL_DOUBLE_INIT", "stall", 1);
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  ncclComm_t comm = nullptr;
  const auto status = wanted.ids > 0 ? make_ids(job, wanted, text) : make(job, wanted, &comm);
  if (status != BOOTSTRAP_OK) {
    const auto waited = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "rank %d after %d ms: %s\n", rank,
                 static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()),
                 bootstrap_last_error());
    ::sleep(static_cast<unsigned>(wanted.linger));
    return 1;
  }
  if (wanted.ids == 0) text = use(job, comm);
  std::printf("rank %d: %s\n", rank, text.c_str());
  bootstrap_close(job);
  return 0;
}
