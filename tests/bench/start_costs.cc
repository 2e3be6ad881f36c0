// What the parts of a start cost on this cluster: time and CPU time of ranks and of their slurmstepd, over bare PMIx.
// SPDX-License-Identifier: Apache-2.0
//
//     srun --mpi=pmix ... start_costs ROUNDS
//
// Every rank prints a line of JSON: times in nanoseconds of CLOCK_MONOTONIC, CPU times in nanoseconds.
// scripts/simulation/calibrate.py makes constants of them.
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "bare_pmix.h"

namespace {

const std::string kValue(128, '\0');  // as large as an ncclUniqueId

std::int64_t read_clock(clockid_t clock) {
  timespec time{};
  (void)::clock_gettime(clock, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

std::int64_t now() { return read_clock(CLOCK_MONOTONIC); }
std::int64_t own_cpu() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

// CPU time of all threads of the process that started this one: the slurmstepd of the node, and PMIx' server in it.
std::int64_t server_cpu() {
  const std::string folder = "/proc/" + std::to_string(::getppid()) + "/task";
  std::int64_t sum = 0;
  DIR* const threads = ::opendir(folder.c_str());
  if (threads == nullptr) return 0;
  while (const dirent* const entry = ::readdir(threads)) {
    std::ifstream file(folder + "/" + entry->d_name + "/schedstat");
    std::int64_t nanoseconds = 0;
    if (entry->d_name[0] != '.' && file >> nanoseconds) sum += nanoseconds;
  }
  (void)::closedir(threads);
  return sum;
}

std::int64_t number_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoll(text);
}

class Probe {
 public:
  explicit Probe(int rounds) : rounds_(rounds) {}

  void run();

 private:
  // Adds "name": [begin, end, CPU time of this rank, CPU time of its slurmstepd (0 but for the node's first rank)].
  template <class Work>
  void measure(const char* name, Work work);
  void put(const std::string& key);
  void read_all(const std::string& key);

  int rounds_;
  bool is_first_ = number_of("SLURM_LOCALID") == 0;  // of its node
  std::uint32_t rank_ = static_cast<std::uint32_t>(number_of("SLURM_PROCID"));
  std::uint32_t ranks_ = static_cast<std::uint32_t>(number_of("SLURM_NTASKS"));
  std::optional<bench::BarePmix> pmix_;
  std::string line_;
};

template <class Work>
void Probe::measure(const char* name, Work work) {
  const auto server = is_first_ ? server_cpu() : 0;
  const auto cpu = own_cpu();
  const auto begin = now();
  work();
  const auto end = now();
  const auto used = own_cpu() - cpu;
  const auto served = is_first_ ? server_cpu() - server : 0;
  line_ += ", \"" + std::string(name) + "\": [" + std::to_string(begin) + ", " + std::to_string(end) + ", " +
           std::to_string(used) + ", " + std::to_string(served) + "]";
}

void Probe::put(const std::string& key) {
  pmix_->put(key, kValue);
  pmix_->commit();
}

void Probe::read_all(const std::string& key) {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) (void)pmix_->get(rank, key);
}

void Probe::run() {
  const auto loading = own_cpu();
  const auto launching = is_first_ ? server_cpu() : 0;
  line_ = "{\"rank\": " + std::to_string(rank_) + ", \"local_rank\": " + std::to_string(number_of("SLURM_LOCALID")) +
          ", \"loading\": " + std::to_string(loading) + ", \"launching\": " + std::to_string(launching);
  measure("init", [this] { pmix_.emplace(); });
  const timespec pause{0, 300'000'000};  // Slurm before 23.02 loses messages while a node has yet to start its tasks
  (void)::nanosleep(&pause, nullptr);
  put("first");
  pmix_->collect();
  read_all("first");
  measure("fences", [this] {
    for (int round = 0; round < rounds_; ++round) {
      put(round % 2 == 0 ? "even" : "odd");
      pmix_->collect();
    }
  });
  pmix_->barrier();
  measure("fence", [this] {
    put("read");
    pmix_->collect();
  });
  measure("reads", [this] { read_all("read"); });
  std::puts((line_ + "}").c_str());
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count == 2 ? std::atoi(words[1]) : 0;
  if (rounds < 1) {
    (void)std::fputs("usage: start_costs ROUNDS\n", stderr);
    return 2;
  }
  Probe(rounds).run();
  return 0;
}
