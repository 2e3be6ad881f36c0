// Opens, exchanges and closes again and again in one process, and prints what that costs in memory and open files:
// exchange_rounds ours|threads|bare|racy ROUNDS; `threads` calls from two threads at once; `racy` exchanges nothing,
// and has the data race of a control.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pmix.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

// Two threads at once, each on a handle of its own. Both make the same call, so that their order does not count.
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

using Bytes = std::array<char, 64>;

// Whether `rank` has put bytes under `key`, asked without blocking, as the library does: PMIx 4.2.2 then loses the
// bytes.
bool has_put(const pmix_proc_t& self, pmix_rank_t rank, const std::string& key) {
  pmix_proc_t peer = self;
  peer.rank = rank;
  static std::atomic<int> answer;  // outlives the callback, which wakes us with its last step
  answer = 0;
  const auto told = [](pmix_status_t status, pmix_value_t* value, void*) {
    const bool is_right = status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_BYTE_OBJECT &&
                          value->data.bo.size == sizeof(Bytes);
    answer = is_right ? 1 : 2;
    answer.notify_one();
  };
  if (PMIx_Get_nb(&peer, key.c_str(), nullptr, 0, told, nullptr) != PMIX_SUCCESS) return false;
  answer.wait(0);
  return answer == 1;
}

bool put(pmix_scope_t scope, const std::string& key) {
  Bytes bytes{};
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo = {.bytes = bytes.data(), .size = bytes.size()};
  return PMIx_Put(scope, key.c_str(), &value) == PMIX_SUCCESS;
}

// How often ranks have come by, in memory that the two of a step share: they are children of its server.
std::atomic<int>& passages(const std::string& name) {
  static auto* const count = [&name] {
    const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(std::atomic<int>)) != 0) std::abort();
    void* const memory = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)::close(file);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<std::atomic<int>*>(memory);
  }();
  return *count;
}

// Stands for our common leave, without which fences get lost: the server notices a moment later that a rank has left.
bool leave_together(int round) {
  const std::string name = "/exchange_rounds." + std::to_string(::getppid());
  auto& count = passages(name);
  ++count;
  for (int waited = 0; count < 2 * (round + 1); ++waited) {
    if (waited == 60'000) return false;
    (void)::usleep(1000);
  }
  if (round == 0) (void)::shm_unlink(name.c_str());  // both have it by now
  (void)::usleep(20'000);
  return true;
}

// The calls of PMIx that an exchange of two ranks of a node consists of: one value for all, one for the meeting of the
// node.
bool use_pmix(int round) {
  pmix_proc_t self{};
  const std::string all = "bare.all." + std::to_string(round % 2);
  const std::string node = "bare.node." + std::to_string(round % 2);
  bool is_right = PMIx_Init(&self, nullptr, 0) == PMIX_SUCCESS && put(PMIX_GLOBAL, all) && put(PMIX_LOCAL, node) &&
                  PMIx_Commit() == PMIX_SUCCESS && PMIx_Fence(nullptr, 0, nullptr, 0) == PMIX_SUCCESS;
  for (const pmix_rank_t rank : {0U, 1U}) {
    is_right = is_right && has_put(self, rank, all) && has_put(self, rank, node);
  }
  is_right = is_right && PMIx_Finalize(nullptr, 0) == PMIX_SUCCESS;
  is_right = is_right && leave_together(round);
  if (!is_right) (void)std::fprintf(stderr, "round %d of bare PMIx failed\n", round);
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
  if (mode == "threads") return call_in_two_threads(round);
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
  (void)std::setvbuf(stderr, nullptr, _IOLBF, 4096);  // a line in one piece, since the ranks share a pipe
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
