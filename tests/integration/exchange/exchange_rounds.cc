// Opens, exchanges and closes repeatedly in one process, and leaves no file open: exchange_rounds MODE ROUNDS.
// `threads` calls from two threads at once; `racy` exchanges nothing and has a data race, as a control.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
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

// Two threads at once, each with its own handle. Both make the same call, so that their order does not matter.
bool call_in_two_threads(int round) {
  std::atomic<int> right{0};
  const auto call = [round, &right] {
    bootstrap_t* job = nullptr;
    const bool is_right = bootstrap_open(&job, nullptr) == BOOTSTRAP_OK && bootstrap_barrier(job) == BOOTSTRAP_OK;
    if (!is_right) (void)std::fprintf(stderr, "round %d: %s\n", round, bootstrap_last_error());
    bootstrap_close(job);
    right += is_right ? 1 : 0;
  };
  std::thread other(call);
  call();
  other.join();
  return right == 2;
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
  if (mode == "threads") return call_in_two_threads(round);
  return exchange(round);
}

long open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  (void)std::setvbuf(stderr, nullptr, _IOLBF, 4096);  // each line in one write, since the ranks share a pipe
  const int rounds = std::atoi(words[2]);
  const int warm = std::min(rounds / 4, 500);  // after these the libraries have allocated what they keep
  long files = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == warm) files = open_files();
    if (!run_round(words[1], round)) return 4;
  }
  if (open_files() == files) return 0;
  (void)std::fprintf(stderr, "%ld files open after %d rounds and %ld at the end\n", files, warm, open_files());
  return 5;
}
