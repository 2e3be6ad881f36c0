// Opens, exchanges and closes again and again in one process, and tells what that costs in memory and open files:
// exchange_rounds ours|bare|racy ROUNDS; the last exchanges nothing, and has the data race of a control.
// SPDX-License-Identifier: Apache-2.0
#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace {

bool exchange(int round) {
  bootstrap_t* job = nullptr;
  bool is_right = bootstrap_open(&job, nullptr) == BOOTSTRAP_OK;
  if (is_right) {
    const int mine = bootstrap_rank(job) + round;
    std::vector<int> all(static_cast<std::size_t>(bootstrap_size(job)), -1);
    is_right = bootstrap_exchange(job, &mine, sizeof mine, all.data()) == BOOTSTRAP_OK;
    for (std::size_t rank = 0; is_right && rank < all.size(); ++rank) {
      is_right = all[rank] == static_cast<int>(rank) + round;
    }
  }
  if (!is_right) (void)std::fprintf(stderr, "round %d: %s\n", round, bootstrap_last_error());
  bootstrap_close(job);
  return is_right;
}

// The pause stands for our common leave, without which fences get lost.
bool use_pmix(int round) {
  pmix_proc_t self{};
  pmix_value_t value{};
  value.type = PMIX_UINT32;
  value.data.uint32 = static_cast<std::uint32_t>(round);
  const bool is_right = PMIx_Init(&self, nullptr, 0) == PMIX_SUCCESS &&
                        PMIx_Put(PMIX_GLOBAL, round % 2 == 0 ? "bare.0" : "bare.1", &value) == PMIX_SUCCESS &&
                        PMIx_Commit() == PMIX_SUCCESS && PMIx_Fence(nullptr, 0, nullptr, 0) == PMIX_SUCCESS &&
                        PMIx_Finalize(nullptr, 0) == PMIX_SUCCESS;
  (void)::usleep(20'000);
  return is_right;
}

int unguarded = 0;

bool race() {
  std::thread other([] { ++unguarded; });
  ++unguarded;
  other.join();
  return true;
}

bool run_round(std::string_view mode, int round) {
  if (mode == "racy") return race();
  return mode == "ours" ? exchange(round) : use_pmix(round);
}

long resident_kib() {
  long total = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

long open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const int rounds = std::atoi(words[2]);
  const int warm = std::min(rounds / 4, 500);  // after these the libraries have what they keep
  long kib = 0;
  long files = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == warm) {
      kib = resident_kib();
      files = open_files();
    }
    if (!run_round(words[1], round)) return 4;
  }
  (void)std::printf("%s: %d rounds, %ld KiB more after %d, files %ld before and %ld after\n", words[1], rounds,
                    resident_kib() - kib, warm, files, open_files());
  return 0;
}
