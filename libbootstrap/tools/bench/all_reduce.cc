// All-reduces of one communicator: how long they take, whether their sums are right, and an end to every wait.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/all_reduce.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "comm/nccl/cuda_buffers.h"
#include "comm/nccl/cuda_device.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "tools/bench/bandwidth.h"

namespace bootstrap {

using std::chrono::steady_clock;

// Everything that a thread may still be using when nobody waits for it any more.
struct AllReduce::State {
  AllReduceMember member;
  std::uint64_t most_bytes = 0;
  std::unique_ptr<CudaBuffers> work;  // made in the first call
};

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // floats that are looked at together
constexpr int kLooksBetweenQuestions = 1024;          // of the stream, between two at NCCL and the clock

// The sum at each index modulo kPeriod.
std::vector<float> sums_of(std::uint32_t ranks) {
  std::vector<float> sums(kPeriod);
  for (std::uint32_t index = 0; index < kPeriod; ++index) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sums[index] += part_of_sum(rank, index);
  }
  return sums;
}

// The calls of one size, in the thread.
class Sizing {
 public:
  Sizing(AllReduce::State& state, const AllReduceTask& task, Deadline deadline)
      : state_(state), task_(task), deadline_(deadline) {}

  Result<BenchFinding> run();

 private:
  Status prepare();
  Status start(bool is_in_place);
  Status wait_until_idle();
  Status check(bool is_in_place);
  Status compare(bool is_in_place);
  Result<double> time();
  nccl::ResultCode state_of_comm() const;
  tl::unexpected<Error> refused(nccl::ResultCode code) const {
    return fail(ErrorCode::kUnavailable, nccl::describe(state_.member.nccl, "ncclAllReduce", code, state_.member.comm));
  }

  AllReduce::State& state_;
  AllReduceTask task_;
  Deadline deadline_;
  BenchFinding finding_;
};

// CUDA's current device is the thread's, and each size has a thread of its own.
Status Sizing::prepare() {
  if (auto status = use_gpu(state_.member.device); !status) return status;
  if (state_.work) return {};
  auto work = CudaBuffers::open(state_.most_bytes);
  if (!work) return fail(work.error());
  std::vector<float> piece(std::min<std::size_t>(kPiece, state_.most_bytes / kFloatBytes));
  for (std::uint64_t at = 0; at < state_.most_bytes / kFloatBytes; at += piece.size()) {
    const auto size = std::min<std::uint64_t>(piece.size(), state_.most_bytes / kFloatBytes - at);
    for (std::uint64_t i = 0; i < size; ++i) piece[i] = part_of_sum(state_.member.rank, at + i);
    auto status = (*work)->write((*work)->from() + at * kFloatBytes, piece.data(), size * kFloatBytes);
    if (!status) return status;
  }
  state_.work = std::move(*work);
  return {};
}

nccl::ResultCode Sizing::state_of_comm() const {
  const auto& nccl = state_.member.nccl;
  auto state = nccl::kSuccess;
  if (nccl.get_async_error == nullptr) return state;
  const auto code = nccl.get_async_error(state_.member.comm, &state);
  return code == nccl::kSuccess ? state : code;
}

Status Sizing::start(bool is_in_place) {
  const auto& work = *state_.work;
  auto* const to = as_pointer(work.to());
  const void* const from = is_in_place ? to : as_pointer(work.from());
  auto code = state_.member.nccl.all_reduce(from, to, task_.bytes / kFloatBytes, nccl::kFloat32, nccl::kSum,
                                            state_.member.comm, work.stream());
  // With NCCL_COMM_BLOCKING=0 in the environment every call may only have begun.
  while (code == nccl::kInProgress && steady_clock::now() < deadline_) {
    (void)::sched_yield();
    code = state_of_comm();
  }
  if (code != nccl::kSuccess) return refused(code);
  return {};
}

// NCCL says nothing by itself when another rank has gone: its kernel goes on waiting, and only this question tells.
Status Sizing::wait_until_idle() {
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

Status Sizing::compare(bool is_in_place) {
  const auto sums = sums_of(state_.member.ranks);
  std::vector<float> piece(std::min<std::size_t>(kPiece, task_.bytes / kFloatBytes));
  for (std::uint64_t at = 0; at < task_.bytes / kFloatBytes; at += piece.size()) {
    const auto size = std::min<std::uint64_t>(piece.size(), task_.bytes / kFloatBytes - at);
    auto status = state_.work->read(piece.data(), state_.work->to() + at * kFloatBytes, size * kFloatBytes);
    if (!status) return status;
    for (std::uint64_t i = 0; i < size; ++i) {
      const float sum = sums[(at + i) % kPeriod];
      if (piece[i] == sum) continue;
      if (finding_.wrong++ == 0) finding_.first = {is_in_place, at + i, piece[i], sum};
    }
  }
  return {};
}

// Out of place the result lies where there was no number before, so that an all-reduce that does nothing is wrong.
Status Sizing::check(bool is_in_place) {
  const auto& work = *state_.work;
  constexpr unsigned char kNoNumber = 0xff;
  auto status =
      is_in_place ? work.copy(work.to(), work.from(), task_.bytes) : work.fill(work.to(), kNoNumber, task_.bytes);
  if (status) status = start(is_in_place);
  if (status) status = wait_until_idle();
  if (status) status = compare(is_in_place);
  return status;
}

Result<double> Sizing::time() {
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

Result<BenchFinding> Sizing::run() {
  auto status = prepare();
  if (status && task_.is_checked) status = check(false);
  if (status && task_.is_checked) status = check(true);
  if (!status) return fail(status.error());
  const auto took = time();
  if (!took) return fail(took.error());
  finding_.microseconds = *took;
  finding_.ranks = state_.member.ranks;
  return finding_;
}

}  // namespace

float part_of_sum(std::uint32_t rank, std::uint64_t index) { return static_cast<float>((rank + index) % kPeriod); }

AllReduce::AllReduce(AllReduceMember member, std::uint64_t most_bytes) : state_(std::make_shared<State>()) {
  state_->member = std::move(member);
  state_->most_bytes = most_bytes;
}

Result<BenchFinding> AllReduce::run(const AllReduceTask& task, Deadline deadline) {
  const auto begin = steady_clock::now();
  const auto too_late = [&] {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - begin).count();
    return fail(ErrorCode::kTimeout, cat({"the all-reduces of ", bytes_text(task.bytes), " have not finished after ",
                                          std::to_string(seconds), " s"}));
  };
  auto result = std::make_shared<std::optional<Result<BenchFinding>>>();
  AbandonableThread worker;
  auto started =
      worker.start([state = state_, task, deadline, result] { *result = Sizing(*state, task, deadline).run(); });
  if (!started) return fail(started.error());
  constexpr std::chrono::milliseconds kLastLook(100);  // the thread looks at the same clock
  if (!worker.wait_until(deadline + kLastLook)) {
    is_stuck_ = true;
    return too_late();
  }
  if (!*result) return fail(ErrorCode::kUnavailable, "out of memory");
  if (!**result && (*result)->error().code == ErrorCode::kTimeout) {
    is_stuck_ = true;  // what is in the stream still runs, and would hold up who frees its buffers
    return too_late();
  }
  return std::move(**result);
}

}  // namespace bootstrap
