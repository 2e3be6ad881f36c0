// One bench from a rank's point of view: what all ranks do together, and how all of them end alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/nccl/communicator.h"
#include "core/plan/step_plan.h"
#include "tools/bench/all_reduce.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {

inline constexpr int kBenchSkipped = 77;  // as in automake's tests: nothing was run, and nothing has failed

// This rank's part in the step; what the exchange and NCCL are is the caller's choice.
struct BenchSelf {
  StepId id;
  Layout layout;
  Rank rank = 0;
  int device = -1;  // CUDA ordinal; -1: Slurm gave none
  std::string nccl_library;
};

// How a bench that fails ends. If all ranks know the reason, rank 0 alone prints it.
struct BenchEnd {
  int status = 1;
  std::string sentence;
  bool is_known_to_all = false;
};

class BenchSession {
 public:
  BenchSession(BenchSelf self, Exchange& exchange, BenchPlan plan);
  BenchSession(const BenchSession&) = delete;
  BenchSession& operator=(const BenchSession&) = delete;
  ~BenchSession();

  // Collective, each of them once and in this order; when one gives an end, no other follows but wait_for_all().
  std::optional<BenchEnd> look();     // has every rank a GPU and NCCL
  std::optional<BenchEnd> connect();  // the communicator; the stage is whole then
  std::optional<BenchEnd> measure(const std::function<void(const BenchRow&)>& show);
  // Returns when rank 0 has printed everything, so that no rank's end keeps srun from reading it.
  void wait_for_all();

  const BenchPlan& plan() const { return plan_; }
  const BenchStage& stage() const { return stage_; }
  const std::vector<BenchRow>& rows() const { return rows_; }
  const std::string& wrong() const { return wrong_; }  // a sentence on the first size with wrong sums; empty: none
  bool is_stuck() const { return all_reduce_ && all_reduce_->is_stuck(); }

 private:
  BenchMember describe_self();
  std::optional<BenchEnd> judge(const std::vector<BenchMember>& members) const;
  template <class Record>
  Result<std::vector<Record>> share(std::string_view purpose, const Record& mine, Deadline deadline);

  BenchSelf self_;
  Exchange& exchange_;
  BenchPlan plan_;
  Group group_;
  nccl::Functions nccl_;
  nccl::Comm comm_ = nullptr;
  std::optional<AllReduce> all_reduce_;
  BenchStage stage_;
  std::vector<BenchRow> rows_;
  std::string wrong_;
};

}  // namespace bootstrap
