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
#include "tools/cli/command_line.h"

namespace bootstrap {
namespace {

struct BenchOptions {
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  std::uint32_t factor = 2;
  std::string communicator = "world";
  bool json = false;
  BenchPlan plan;  // all but the sizes and the group
};

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
  auto plan = options.plan;
  plan.sizes = std::move(*sizes);
  if (options.communicator == "node") plan.group = GroupKind::kNode;
  if (options.communicator == "cross") plan.group = GroupKind::kCross;
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
    if (!end && is_first_ && !options_.json) print(head_text(session_.stage(), session_.plan()));
    if (!end) end = session_.measure([this](const BenchRow& row) { show(row); });
    if (end) return finish(*end);
    if (is_first_) {
      print(options_.json ? bench_json(session_.stage(), session_.plan(), session_.rows())
                          : foot_text(session_.rows()));
    }
    return session_.wrong().empty() ? 0 : finish({.sentence = session_.wrong(), .is_known_to_all = true});
  }

 private:
  // Each step may take its time, and then the exchange after it.
  void watch(const char* activity) {
    time_limit_.reset();
    time_limit_ = std::make_unique<CommandTimeLimit>("the benchmark", 2 * options_.plan.timeout + kExcess);
    CommandTimeLimit::now(activity);
  }

  void show(const BenchRow& row) {
    if (is_first_ && !options_.json) print(row_text(row, options_.plan.task.is_checked));
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

void add_number(CLI::App& command, const char* name, std::uint32_t& value, std::uint64_t least, std::uint64_t most,
                const char* help) {
  command.add_option(name, value, help)->type_name("N")->check(whole_number(least, most));
}

std::string check_communicator(const std::string& word) {
  if (word == "world" || word == "node" || word == "cross") return "";
  return cat({bootstrap::quoted(word), " is not world, node or cross"});
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  const auto options = std::make_shared<BenchOptions>();
  auto& task = options->plan.task;
  constexpr std::uint32_t kMost = 1000000;
  auto* const command = add_command(
      app, "bench",
      "Times NCCL's all-reduce between the GPUs of the step, by message size. Start it as the tasks of a step with "
      "GPUs.",
      "BYTES takes K, M and G, which are 1024, 1024^2 and 1024^3.\n"
      "\n"
      "Examples:\n"
      "  srun -N2 --ntasks-per-node 8 --gres gpu:8 slurm-bootstrap bench\n"
      "  srun --ntasks 8 --gres gpu:8 slurm-bootstrap bench --max-bytes 4G --json\n"
      "\n"
      "Exit status (the same on all ranks):\n"
      "  0   all sums are right, or not verified\n"
      "  1   a sum is wrong, or something failed\n"
      "  2   the command line is wrong, or this process is not a task of a step\n"
      "  77  CUDA has no GPU for any rank\n");
  command->add_option("--min-bytes", options->min_bytes, "Smallest message (default 8)")->type_name("BYTES");
  command->add_option("--max-bytes", options->max_bytes, "Largest message (default 128M)")->type_name("BYTES");
  add_number(*command, "--factor", options->factor, 2, kMost, "From one size to the next (default 2)");
  add_number(*command, "--iterations", task.iterations, 1, kMost, "Timed all-reduces of each size (default 20)");
  add_number(*command, "--warmup", task.warmup, 0, kMost, "Untimed all-reduces before them (default 5)");
  command
      ->add_option("--communicator", options->communicator,
                   "Of all ranks (default), of each node, or of each local rank")
      ->type_name("world|node|cross")
      ->check(CLI::Validator(check_communicator, ""));
  command->add_flag("--in-place", task.is_in_place, "Use one buffer instead of two");
  command->add_flag_callback(
      "--no-check", [&task] { task.is_checked = false; }, "Do not verify the sums");
  command->add_flag("--json", options->json, "Print JSON instead of the table");
  add_seconds(*command, "--timeout", options->plan.timeout,
              "Stop if a size, or the wait for all ranks, takes longer (default 60)");
  command->callback([options, &status] { status = bench_command(*options); });
}

}  // namespace bootstrap
