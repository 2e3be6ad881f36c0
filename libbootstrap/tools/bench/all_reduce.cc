// All-reduces of one communicator: how long they take, whether their sums are right, and an end to every wait.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/all_reduce.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "comm/nccl/cuda_buffers.h"
#include "comm/nccl/cuda_device.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {

using std::chrono::steady_clock;

// What a thread may still use after the wait for it has ended.
struct AllReduce::State {
  AllReduceMember member;
  std::uint64_t most_bytes = 0;
  std::unique_ptr<CudaBuffers> work;  // made in the first call
};

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // floats that are looked at together
constexpr int kLooksBetweenQuestions = 1024;          // of the stream, between two at NCCL and the clock

// The calls of one size, in the thread.
class Sizing {
 public:
  Sizing(AllReduce::State& state, const AllReduceTask& task, Deadline deadline)
      : state_(state), member_(state.member), task_(task), deadline_(deadline) {}

  Result<BenchFinding> run() {
    auto status = prepare();
    // Out of place the result replaces bytes that are no number, so that an all-reduce that does nothing is wrong.
    constexpr unsigned char kNoNumber = 0xff;
    if (status && task_.is_checked) status = state_.work->fill(state_.work->to(), kNoNumber, task_.bytes);
    if (status && task_.is_checked) status = check(false);
    if (status && task_.is_checked) status = state_.work->copy(state_.work->to(), state_.work->from(), task_.bytes);
    if (status && task_.is_checked) status = check(true);
    if (!status) return fail(status.error());
    const auto took = time();
    if (!took) return fail(took.error());
    finding_.microseconds = *took;
    finding_.ranks = member_.ranks;
    return finding_;
  }

 private:
  // Calls `work` with the place and the size of each piece of a buffer, in floats.
  template <class Work>
  static Status for_each_piece(std::uint64_t bytes, Work work) {
    const auto floats = bytes / kFloatBytes;
    std::vector<float> piece(std::min<std::uint64_t>(kPiece, floats));
    for (std::uint64_t at = 0; at < floats; at += piece.size()) {
      auto status = work(at, piece.data(), std::min<std::uint64_t>(piece.size(), floats - at));
      if (!status) return status;
    }
    return {};
  }

  // CUDA's current device is the thread's, and each size has a thread of its own.
  Status prepare() {
    if (auto status = use_gpu(member_.device); !status) return status;
    if (state_.work) return {};
    auto work = CudaBuffers::open(state_.most_bytes);
    if (!work) return fail(work.error());
    auto written = for_each_piece(state_.most_bytes, [&](std::uint64_t at, float* piece, std::uint64_t size) {
      for (std::uint64_t i = 0; i < size; ++i) piece[i] = part_of_sum(member_.rank, at + i);
      return (*work)->write((*work)->from() + at * kFloatBytes, piece, size * kFloatBytes);
    });
    if (written) state_.work = std::move(*work);
    return written;
  }

  tl::unexpected<Error> refused(nccl::ResultCode code) const {
    return fail(ErrorCode::kUnavailable, nccl::describe(member_.nccl, "ncclAllReduce", code, member_.comm));
  }

  nccl::ResultCode state_of_comm() const {
    auto state = nccl::kSuccess;
    if (member_.nccl.get_async_error == nullptr) return state;
    const auto code = member_.nccl.get_async_error(member_.comm, &state);
    return code == nccl::kSuccess ? state : code;
  }

  Status start(bool is_in_place) {
    auto* const to = as_pointer(state_.work->to());
    const void* const from = is_in_place ? to : as_pointer(state_.work->from());
    auto code = member_.nccl.all_reduce(from, to, task_.bytes / kFloatBytes, nccl::kFloat32, nccl::kSum, member_.comm,
                                        state_.work->stream());
    // With NCCL_COMM_BLOCKING=0 in the environment every call may only have begun.
    while (code == nccl::kInProgress && steady_clock::now() < deadline_) {
      (void)::sched_yield();
      code = state_of_comm();
    }
    if (code != nccl::kSuccess) return refused(code);
    return {};
  }

  // If another rank has ended, NCCL's kernel waits on, and only this question shows it.
  Status wait_until_idle() {
    for (int looks = 1;; ++looks) {
      const auto is_idle = state_.work->is_idle();
      if (!is_idle) return fail(is_idle.error());
      if (*is_idle) return {};
      if (looks % kLooksBetweenQuestions == 0) {
        const auto code = state_of_comm();
        if (code != nccl::kSuccess && code != nccl::kInProgress) return refused(code);
        if (steady_clock::now() >= deadline_) return fail(ErrorCode::kTimeout, "");
      }
      (void)::sched_yield();
    }
  }

  // One all-reduce, and each of its sums.
  Status check(bool is_in_place) {
    auto status = start(is_in_place);
    if (status) status = wait_until_idle();
    if (!status) return status;
    std::vector<float> sums(kPeriod);  // at each index modulo kPeriod
    for (std::uint32_t index = 0; index < kPeriod; ++index) {
      for (std::uint32_t rank = 0; rank < member_.ranks; ++rank) sums[index] += part_of_sum(rank, index);
    }
    return for_each_piece(task_.bytes, [&](std::uint64_t at, float* piece, std::uint64_t size) {
      auto read = state_.work->read(piece, state_.work->to() + at * kFloatBytes, size * kFloatBytes);
      for (std::uint64_t i = 0; read && i < size; ++i) {
        const float sum = sums[(at + i) % kPeriod];
        if (piece[i] == sum) continue;
        if (finding_.wrong++ == 0) finding_.first = {is_in_place, at + i, piece[i], sum};
      }
      return read;
    });
  }

  Result<double> time() {
    auto begin = steady_clock::now();
    for (std::uint32_t i = 0; i < task_.warmup + task_.iterations; ++i) {
      if (i == task_.warmup) {
        if (auto status = wait_until_idle(); !status) return fail(status.error());
        begin = steady_clock::now();
      }
      if (auto status = start(task_.is_in_place); !status) return fail(status.error());
    }
    if (auto status = wait_until_idle(); !status) return fail(status.error());
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
    return took.count() / task_.iterations;
  }

  AllReduce::State& state_;
  const AllReduceMember& member_;
  AllReduceTask task_;
  Deadline deadline_;
  BenchFinding finding_;
};

}  // namespace

float part_of_sum(std::uint32_t rank, std::uint64_t index) { return static_cast<float>((rank + index) % kPeriod); }

AllReduce::AllReduce(AllReduceMember member, std::uint64_t most_bytes) : state_(std::make_shared<State>()) {
  state_->member = std::move(member);
  state_->most_bytes = most_bytes;
}

Result<BenchFinding> AllReduce::run(const AllReduceTask& task, Deadline deadline) {
  const auto begin = steady_clock::now();
  constexpr std::chrono::milliseconds kLastLook(100);  // the thread looks at the same clock
  const auto ended = call_with_deadline<Result<BenchFinding>>(
      "the all-reduce", [state = state_, task, deadline] { return Sizing(*state, task, deadline).run(); },
      deadline + kLastLook);
  auto finding = ended ? *ended : fail(ended.error());
  // What is in the stream still runs, and freeing its buffers would wait for it.
  is_stuck_ = !finding && finding.error().code == ErrorCode::kTimeout;
  if (!is_stuck_) return finding;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - begin).count();
  return fail(ErrorCode::kTimeout, cat({"the all-reduces of ", bytes_text(task.bytes), " have not finished after ",
                                        std::to_string(seconds), " s"}));
}

}  // namespace bootstrap
