// The control of the exchange tests: the same with PMIx's calls alone.
// SPDX-License-Identifier: Apache-2.0
#include <pmix.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

bool succeeds(pmix_status_t status, const char* call, int round) {
  if (status == PMIX_SUCCESS) return true;
  (void)std::fprintf(stderr, "round %d: %s: %s (%d)\n", round, call, PMIx_Error_string(status), status);
  return false;
}

pmix_info_t flag(const char* key) {
  pmix_info_t info{};
  (void)std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_BOOL;
  info.value.data.flag = true;
  return info;
}

bool put(int rank, int round) {
  std::string text = std::to_string(rank) + " " + std::to_string(round);
  pmix_value_t value{};
  value.type = PMIX_STRING;
  value.data.string = text.data();
  return succeeds(PMIx_Put(PMIX_GLOBAL, ("bare." + std::to_string(round)).c_str(), &value), "PMIx_Put", round) &&
         succeeds(PMIx_Commit(), "PMIx_Commit", round);
}

// Reads only the next rank's value: this program tests the fence.
bool get(const pmix_proc_t& self, int size, int round) {
  pmix_proc_t other = self;
  other.rank = (self.rank + 1) % static_cast<unsigned>(size);
  const pmix_info_t at_once = flag(PMIX_IMMEDIATE);
  pmix_value_t* value = nullptr;
  if (!succeeds(PMIx_Get(&other, ("bare." + std::to_string(round)).c_str(), &at_once, 1, &value), "PMIx_Get", round)) {
    return false;
  }
  const std::string expected = std::to_string(other.rank) + " " + std::to_string(round);
  const bool is_right = value->type == PMIX_STRING && expected == value->data.string;
  PMIX_VALUE_RELEASE(value);
  return is_right;
}

// MPI_Init needs this value.
bool find_local_rank(const pmix_proc_t& self, int round) {
  pmix_value_t* value = nullptr;
  if (!succeeds(PMIx_Get(&self, PMIX_LOCAL_RANK, nullptr, 0, &value), "PMIx_Get", round)) return false;
  PMIX_VALUE_RELEASE(value);
  return true;
}

bool run(int rounds, int victim, std::string_view extra) {
  const int size = std::atoi(std::getenv("SLURM_NTASKS"));
  for (int round = 0; round < rounds; ++round) {
    pmix_proc_t self{};
    if (!succeeds(PMIx_Init(&self, nullptr, 0), "PMIx_Init", round)) return false;
    if (extra == "look" && std::system("ls -l /proc/self/fd") != 0) return false;
    if (extra == "local-rank" && !find_local_rank(self, round)) {
      (void)PMIx_Finalize(nullptr, 0);
      return false;
    }
    const pmix_info_t collect = flag(PMIX_COLLECT_DATA);
    if (!put(static_cast<int>(self.rank), round)) return false;
    if (static_cast<int>(self.rank) == victim) ::_exit(0);
    if (!succeeds(PMIx_Fence(nullptr, 0, &collect, 1), "PMIx_Fence", round)) return false;
    if (victim < 0 && !get(self, size, round)) return false;
    (void)succeeds(PMIx_Finalize(nullptr, 0), "PMIx_Finalize", round);
  }
  return true;
}

}  // namespace

// exchange_bare ROUNDS [VICTIM | look | local-rank]: the victim leaves each session before its fence.
int main(int count, char** words) {
  const std::string_view extra = count > 2 ? words[2] : "";
  const bool has_victim = !extra.empty() && extra.find_first_not_of("0123456789") == std::string_view::npos;
  const bool is_done = run(count > 1 ? std::atoi(words[1]) : 1, has_victim ? std::atoi(words[2]) : -1, extra);
  (void)std::printf("%s\n", is_done ? "success" : "failed");
  (void)std::fflush(stdout);
  return is_done ? 0 : 4;
}
