// What the parts of a start cost on this cluster: time and CPU time of ranks and of their slurmstepd, over bare PMIx.
// SPDX-License-Identifier: Apache-2.0
//
//     srun --mpi=pmix ... start_costs ROUNDS
//
// Every rank prints a line of JSON: times in nanoseconds of CLOCK_MONOTONIC, CPU times in nanoseconds.
// scripts/simulation/calibrate.py makes constants of them.
#include <dirent.h>
#include <pmix.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kValueSize = 128;  // as large as an ncclUniqueId

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

void check(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS) return;
  (void)std::fprintf(stderr, "start_costs: %s: %s\n", call, PMIx_Error_string(status));
  std::exit(1);
}

std::int64_t number_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoll(text);
}

class Probe {
 public:
  explicit Probe(int rounds) : rounds_(rounds), is_first_(number_of("SLURM_LOCALID") == 0) {}

  void run();

 private:
  // Adds "name": [begin, end, CPU time of this rank, CPU time of its slurmstepd (0 but for the node's first rank)].
  template <class Work>
  void measure(const char* name, Work work);
  void put(const std::string& key) const;
  void collect() const;
  void read_all(const std::string& key) const;

  int rounds_;
  bool is_first_;
  pmix_proc_t self_{};
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

void Probe::put(const std::string& key) const {
  static char bytes[kValueSize];
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = bytes;
  value.data.bo.size = kValueSize;
  check(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put");
  check(PMIx_Commit(), "PMIx_Commit");
}

void Probe::collect() const {
  pmix_info_t with_data{};
  (void)std::strncpy(with_data.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
  with_data.value.type = PMIX_BOOL;
  with_data.value.data.flag = true;
  check(PMIx_Fence(nullptr, 0, &with_data, 1), "PMIx_Fence with data");
}

void Probe::read_all(const std::string& key) const {
  const auto ranks = static_cast<pmix_rank_t>(number_of("SLURM_NTASKS"));
  pmix_proc_t whose = self_;
  for (whose.rank = 0; whose.rank < ranks; ++whose.rank) {
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&whose, key.c_str(), nullptr, 0, &value), "PMIx_Get");
    PMIX_VALUE_RELEASE(value);
  }
}

void Probe::run() {
  const auto loading = own_cpu();
  const auto launching = is_first_ ? server_cpu() : 0;
  line_ = "{\"rank\": " + std::to_string(number_of("SLURM_PROCID")) +
          ", \"local_rank\": " + std::to_string(number_of("SLURM_LOCALID")) +
          ", \"loading\": " + std::to_string(loading) + ", \"launching\": " + std::to_string(launching);
  measure("init", [this] { check(PMIx_Init(&self_, nullptr, 0), "PMIx_Init"); });
  const timespec pause{0, 300'000'000};  // Slurm before 23.02 loses messages while a node has yet to start its tasks
  (void)::nanosleep(&pause, nullptr);
  put("first");
  collect();
  read_all("first");
  measure("fences", [this] {
    for (int round = 0; round < rounds_; ++round) {
      put(round % 2 == 0 ? "even" : "odd");
      collect();
    }
  });
  check(PMIx_Fence(nullptr, 0, nullptr, 0), "PMIx_Fence");
  measure("fence", [this] {
    put("read");
    collect();
  });
  measure("reads", [this] { read_all("read"); });
  std::puts((line_ + "}").c_str());
  check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
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
