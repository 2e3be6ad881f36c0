// Measures the exchange after the start of PMIx, beside bare PMIx calls in the same step: time, messages, memory.
// SPDX-License-Identifier: Apache-2.0
//
//     exchange_bench rounds COUNT            begin and end of each round, of our exchange and its peers in turn:
//                                            one id to all ("id"), and 128 bytes of each rank to all ("gather")
//     exchange_bench wire ours|pmi1|bare COUNT
//                                            COUNT rounds of one kind and nothing else, for strace
//     exchange_bench memory COUNT            private memory before and during COUNT rounds of ours
//     exchange_bench start COUNT             start of the process (see exchange_clock) to the end of COUNT bare rounds
//
// Every rank prints lines of JSON. Times are CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of a
// machine, also in the network namespaces of scripts/cluster.
#include <pmix.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/exchange.h"
#include "comm/helper/helper.h"
#include "core/plan/plan.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"

namespace {

using namespace std::chrono_literals;

const std::string kValue(128, 'x');  // as large as an ncclUniqueId

std::int64_t now() {
  timespec time{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

[[noreturn]] void stop(const std::string& why) {
  (void)std::fprintf(stderr, "exchange_bench: %s\n", why.c_str());
  std::exit(1);
}

// The peer: bare PMIx calls in one session that is open as long as the object lives. Like PMIx's example programs it
// has no deadline, no check and no query for missing ranks. If PMIx refuses a call, the process ends with a message.
class BarePmix {
 public:
  BarePmix() { check(PMIx_Init(&self_, nullptr, 0), "PMIx_Init"); }
  ~BarePmix() { check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize"); }
  BarePmix(const BarePmix&) = delete;
  BarePmix& operator=(const BarePmix&) = delete;

  // A fence without data. All ranks leave it at about the same time; ranks of different nodes do so only in steps of at
  // least TreeWidth nodes (etc/doc/pmix-facts.md).
  void barrier() const { check(PMIx_Fence(nullptr, 0, nullptr, 0), "PMIx_Fence"); }

  void put(const std::string& key, const std::string& value) const {
    pmix_value_t packed{};
    packed.type = PMIX_BYTE_OBJECT;
    packed.data.bo.bytes = const_cast<char*>(value.data());
    packed.data.bo.size = value.size();
    check(PMIx_Put(PMIX_GLOBAL, key.c_str(), &packed), "PMIx_Put");
  }

  // A fence that carries all values to all nodes.
  void collect() const {
    check(PMIx_Commit(), "PMIx_Commit");
    pmix_info_t with_data{};
    (void)std::strncpy(with_data.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    with_data.value.type = PMIX_BOOL;
    with_data.value.data.flag = true;
    check(PMIx_Fence(nullptr, 0, &with_data, 1), "PMIx_Fence with data");
  }

  // Returns the sum of the value's bytes.
  unsigned get(std::uint32_t rank, const std::string& key) {
    pmix_proc_t owner = self_;
    owner.rank = rank;
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&owner, key.c_str(), nullptr, 0, &value), "PMIx_Get");
    const auto* const bytes = reinterpret_cast<const unsigned char*>(value->data.bo.bytes);
    const auto sum = std::accumulate(bytes, bytes + value->data.bo.size, 0U);
    PMIX_VALUE_RELEASE(value);
    return sum;
  }

  // The value of rank 0 to all: one put, and a collecting fence and one get on each rank.
  unsigned broadcast(const std::string& value) {
    const auto key = next_key();
    if (self_.rank == 0) put(key, value);
    collect();
    return get(0, key);
  }

  // The values of all `ranks` to all: a put, a collecting fence and `ranks` gets on each.
  unsigned gather(std::uint32_t ranks, const std::string& value) {
    const auto key = next_key();
    put(key, value);
    collect();
    unsigned sum = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += get(rank, key);
    return sum;
  }

 private:
  static void check(pmix_status_t status, const char* call) {
    if (status != PMIX_SUCCESS) stop(std::string(call) + ": " + PMIx_Error_string(status));
  }

  // Each round has a new key: libpmix keeps the values that it has read as long as the session is open.
  std::string next_key() { return "bench." + std::to_string(rounds_++); }

  pmix_proc_t self_{};
  int rounds_ = 0;
};

// The exchange of the library: over PMIx, or over PMI-1 as in a step without PMIx.
class Ours {
 public:
  explicit Ours(bool is_pmi1 = false) {
    auto environment = bootstrap::process_environment();
    if (is_pmi1) environment.unset("PMIX_NAMESPACE");
    auto task = bootstrap::read_own_plan(environment);
    if (!task) stop(task.error().message);
    size_ = static_cast<std::uint32_t>(task->facts.layout.size());
    rank_ = task->facts.ranks_here.front();
    exchange_ = bootstrap::make_exchange({task->facts.id, task->facts.layout, rank_, environment});
  }

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }

  void broadcast() { run({0}, rank_ == 0); }
  void gather() {
    std::vector<bootstrap::Rank> all(size_);
    for (bootstrap::Rank rank = 0; rank < size_; ++rank) all[rank] = rank;
    run(all, true);
  }

 private:
  void run(const std::vector<bootstrap::Rank>& wanted, bool is_mine_wanted) {
    bootstrap::Allgather round;
    round.purpose = "bench";
    round.is_for_step = is_mine_wanted;
    if (is_mine_wanted) round.value = kValue;
    round.read = wanted;
    round.deadline = std::chrono::steady_clock::now() + 30s;
    const auto result = exchange_->run(round);
    if (!result) stop(result.error().message);
    for (const auto& value : *result) {
      if (value != kValue) stop("another value came than was sent");
    }
  }

  std::unique_ptr<bootstrap::Exchange> exchange_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
};

void check_sum(unsigned sum, std::uint32_t values) {
  if (sum != values * static_cast<unsigned>(kValue.size()) * 'x')
    stop("another value came over bare PMIx than was sent");
}

// One way to move the same values: a round of it verifies what arrived.
struct Way {
  const char* kind;
  const char* who;
  std::function<void()> run;
  std::vector<std::int64_t> times = {};  // begin and end of each round, in turn
};

void print_times(std::uint32_t rank, const Way& way) {
  std::string line = "{\"rank\": " + std::to_string(rank) + ", \"kind\": \"" + way.kind + "\", \"who\": \"" + way.who +
                     "\", \"times\": [";
  for (std::size_t i = 0; i < way.times.size(); ++i) line += (i == 0 ? "" : ",") + std::to_string(way.times[i]);
  std::puts((line + "]}").c_str());
}

std::vector<Way> all_ways(Ours& ours, Ours& pmi1, BarePmix& bare) {
  const auto size = ours.size();
  return {{"id", "ours", [&] { ours.broadcast(); }},
          {"id", "pmi1", [&] { pmi1.broadcast(); }},
          {"id", "bare", [&] { check_sum(bare.broadcast(kValue), 1); }},
          {"gather", "ours", [&] { ours.gather(); }},
          {"gather", "pmi1", [&] { pmi1.gather(); }},
          {"gather", "bare", [&, size] { check_sum(bare.gather(size, kValue), size); }}};
}

// Runs all ways in turn, each after a barrier. Each round begins with another way.
void measure_rounds(Ours& ours, BarePmix& bare, int count) {
  Ours pmi1(true);
  auto ways = all_ways(ours, pmi1, bare);
  for (std::size_t round = 0; round < static_cast<std::size_t>(count); ++round) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      auto& way = ways[(turn + round) % ways.size()];
      bare.barrier();
      way.times.push_back(now());
      way.run();
      way.times.push_back(now());
    }
  }
  for (const auto& way : ways) print_times(ours.rank(), way);
}

// Private memory of this process in KiB: pages that it has written. Pages that it only reads belong to the file.
long private_memory() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Private_Dirty:", 0) == 0) return std::atol(line.substr(line.find(':') + 1).c_str());
  }
  stop("/proc/self/smaps_rollup says nothing of Private_Dirty");
}

void measure_memory(Ours& ours, BarePmix& bare, int count) {
  // libpmix allocates its own memory in the first round, before the first measurement.
  for (int round = 0; round < 3; ++round) check_sum(bare.broadcast(kValue), 1);
  std::atomic<bool> is_over{false};
  std::atomic<long> most{0};
  std::thread sampler([&] {
    while (!is_over) {
      most = std::max(most.load(), private_memory());
      const timespec pause{0, 200'000};
      (void)::nanosleep(&pause, nullptr);
    }
  });
  const timespec settle{0, 50'000'000};
  (void)::nanosleep(&settle, nullptr);
  const long before = private_memory();
  most = before;
  for (int round = 0; round < count; ++round) {
    bare.barrier();
    ours.broadcast();
  }
  is_over = true;
  sampler.join();
  std::printf("{\"rank\": %u, \"before\": %ld, \"during\": %ld, \"after\": %ld}\n", ours.rank(), before, most.load(),
              private_memory());
}

// The time from the start of a program that calls PMIx itself until it has the id.
void measure_start(int count) {
  const char* const started = std::getenv("BENCH_STARTED");
  const char* const rank = std::getenv("SLURM_PROCID");
  if (started == nullptr || rank == nullptr) stop("start it with srun and exchange_clock");
  const char* const size = std::getenv("SLURM_NTASKS");
  BarePmix bare;
  const auto ranks = static_cast<std::uint32_t>(size == nullptr ? 1 : std::atoi(size));
  for (; count > 0; --count) check_sum(bare.gather(ranks, kValue), ranks);
  std::printf("{\"rank\": %s, \"started\": %s, \"ended\": %jd}\n", rank, started, static_cast<std::intmax_t>(now()));
}

}  // namespace

int main(int count, char** words) {
  if (bootstrap::is_helper(count, words)) bootstrap::serve_as_helper();
  const std::string mode = count > 1 ? words[1] : "";
  const int rounds = count > 2 ? std::atoi(words[count - 1]) : 0;
  if (rounds < 1) stop("usage: exchange_bench rounds|memory|start COUNT, exchange_bench wire ours|pmi1|bare COUNT");
  if (mode == "start") {
    measure_start(rounds);
    return 0;
  }
  Ours ours;
  BarePmix bare;
  // Slurm before 23.02 loses messages of bare fences until all nodes have started their tasks. Our exchange waits.
  ours.gather();
  if (mode == "rounds") {
    measure_rounds(ours, bare, rounds);
  } else if (mode == "memory") {
    measure_memory(ours, bare, rounds);
  } else {
    const std::string who = words[2];
    if (who == "pmi1") ours = Ours(true);
    for (int round = 0; round < rounds; ++round) {
      who == "bare" ? check_sum(bare.broadcast(kValue), 1) : ours.broadcast();
    }
  }
  return 0;
}
