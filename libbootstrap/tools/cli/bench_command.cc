// slurm-bootstrap bench: how fast the ranks of this step add numbers up, by message size.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/settings/settings.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_session.h"
#include "tools/check/command_time_limit.h"
#include "tools/cli/commands.h"

namespace bootstrap {
namespace {

// srun drops what it has not read when it ends a step.
constexpr std::chrono::milliseconds kTravelTimeOfTable(300);
constexpr std::chrono::seconds kExcess(10);  // of an exchange and what else has no deadline, beyond the timeout

Result<BenchPlan> read_plan(const BenchOptions& options) {
  const auto least = parse_bytes("--min-bytes", options.min_bytes);
  if (!least) return fail(least.error());
  const auto most = parse_bytes("--max-bytes", options.max_bytes);
  if (!most) return fail(most.error());
  auto sizes = sizes_of({.least = *least, .most = *most, .factor = options.factor});
  if (!sizes) return fail(sizes.error());
  BenchPlan plan;
  plan.sizes = std::move(*sizes);
  if (options.communicator == "node") plan.group = GroupKind::kNode;
  if (options.communicator == "cross") plan.group = GroupKind::kCross;
  plan.task = {.iterations = options.iterations,
               .warmup = options.warmup,
               .is_in_place = options.in_place,
               .is_checked = options.check};
  plan.timeout = options.timeout;
  return plan;
}

Result<BenchSelf> read_self(const Environment& environment) {
  const auto task = read_own_task(environment);
  if (!task) return fail(task.error());
  BenchSelf self;
  self.id = task->facts.id;
  self.layout = task->facts.layout;
  self.rank = task->facts.local_ranks.front();
  const auto device = parse_unsigned(effective_value(task->plan, "BOOTSTRAP_GPU"), kMaxGpus);
  if (device && has_our_gpu_list(*task)) self.device = static_cast<int>(*device);
  self.nccl_library = process_settings(environment).nccl_file.value;
  return self;
}

void print(const std::string& text) {
  (void)std::fputs(text.c_str(), stdout);
  (void)std::fflush(stdout);
}

class Bench {
 public:
  Bench(BenchSession& session, const BenchOptions& options, bool is_first)
      : session_(session), options_(options), is_first_(is_first) {}

  int run() {
    watch("the wait for all ranks");
    auto end = session_.look();
    watch("the start of the communicator");
    if (!end) end = session_.connect();
    if (!end && is_first_ && !options_.json) print(head_text(session_.stage()));
    if (!end) end = session_.measure([this](const BenchRow& row) { show(row); });
    if (end) return finish(*end);
    if (is_first_) {
      print(options_.json ? bench_json(session_.stage(), session_.rows()) : foot_text(session_.rows()));
    }
    return session_.wrong().empty() ? 0 : finish({.sentence = session_.wrong(), .is_known_to_all = true});
  }

 private:
  // Each step may take its time, and then the exchange after it.
  void watch(const char* activity) {
    time_limit_.reset();
    time_limit_ = std::make_unique<CommandTimeLimit>("the benchmark", 2 * options_.timeout + kExcess, is_first_);
    CommandTimeLimit::now(activity);
  }

  void show(const BenchRow& row) {
    if (is_first_ && !options_.json) print(row_text(row, options_.check));
    watch("an all-reduce");
  }

  int finish(const BenchEnd& end) {
    if (is_first_ || !end.is_known_to_all) complain(end.sentence);
    if (!end.is_known_to_all) return end.status;
    watch("its end");
    if (is_first_) sleep_for(kTravelTimeOfTable);
    session_.wait_for_all();
    return end.status;
  }

  BenchSession& session_;
  const BenchOptions& options_;
  bool is_first_;
  std::unique_ptr<CommandTimeLimit> time_limit_;
};

}  // namespace

int bench_command(const BenchOptions& options) {
  const auto environment = process_environment();
  auto plan = read_plan(options);
  if (!plan) return complain(plan.error().message, kUsageError);
  auto self = read_self(environment);
  if (!self) return complain_of_rank(self.error(), "--ntasks-per-node 2 --gres gpu:2 slurm-bootstrap bench");
  const auto exchange = make_exchange(self->id, self->layout, self->rank, environment);
  const bool is_first = self->rank == 0;
  auto session = std::make_unique<BenchSession>(std::move(*self), *exchange, std::move(*plan));
  const int status = Bench(*session, options, is_first).run();
  if (!session->is_stuck()) {
    const CommandTimeLimit time_limit("the benchmark", kExcess);
    CommandTimeLimit::now("the end of the communicator");
    session.reset();
    return status;
  }
  // A thread is in NCCL or CUDA and will not come back: exit(3) would wait for what it holds.
  (void)std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace bootstrap
