// One bench from a rank's point of view: what all ranks do together, and how all of them end alike.
// SPDX-License-Identifier: Apache-2.0
//
// Between two sizes the ranks exchange their findings over PMIx, and not over the communicator that they measure: so a
// rank that has ended, or hangs in NCCL, is named, and no rank begins a size that another rank cannot.
#include "tools/bench/bench_session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/nccl/cuda_buffers.h"
#include "comm/nccl/cuda_device.h"
#include "comm/nccl/rank_conflicts.h"
#include "core/step/rank_layout.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;
using std::chrono::milliseconds;

// How far the ranks' deadlines may be apart: a rank with an early answer waits for the deadline of the others.
constexpr milliseconds kLateness(5000);

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

constexpr std::string_view kNoGpu =
    "Slurm gave it no GPU; request GPUs: srun --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap bench";

Group group_of(const Layout& layout, Rank rank, GroupKind kind) {
  if (kind == GroupKind::kNode) return node_group(layout, rank);
  return kind == GroupKind::kCross ? cross_group(layout, rank) : world_group(layout, rank);
}

double most(const std::vector<BenchFinding>& findings, double BenchFinding::*member) {
  double value = 0;
  for (const auto& finding : findings) value = std::max(value, finding.*member);
  return value;
}

double milliseconds_between(Deadline begin, Deadline end) { return Milliseconds(end - begin).count(); }

BenchEnd known_to_all(int status, std::string sentence) { return {status, std::move(sentence), true}; }

}  // namespace

BenchSession::BenchSession(BenchSelf self, Exchange& exchange, BenchPlan plan)
    : self_(std::move(self)),
      exchange_(exchange),
      plan_(std::move(plan)),
      group_(group_of(self_.layout, self_.rank, plan_.group)) {
  stage_.step = to_string(self_.id);
  stage_.ranks = static_cast<std::uint32_t>(self_.layout.size());
  stage_.nodes = static_cast<std::uint32_t>(self_.layout.node_count());
}

BenchSession::~BenchSession() {
  if (is_stuck()) return;  // the process ends without asking NCCL or CUDA for anything more
  all_reduce_.reset();
  // Destroying waits for what was begun, which after trouble may have no end.
  const auto end = rows_.size() == plan_.sizes.size() ? nccl_.destroy : nccl_.abort;
  if (comm_ != nullptr && end != nullptr) (void)end(comm_);
}

BenchMember BenchSession::describe_self() {
  BenchMember member;
  if (const auto reason = self_.device < 0 ? std::optional(std::string(kNoGpu)) : why_no_gpu(); reason) {
    member.text = *reason;
    return member;
  }
  member.gpu = BenchMember::Gpu::kRefused;
  if (const auto status = use_gpu(self_.device); !status) {
    member.text = status.error().message;
    return member;
  }
  const auto gpu = name_of_gpu(self_.device);
  member.text = gpu ? *gpu : gpu.error().message;
  if (gpu) member.gpu = BenchMember::Gpu::kThere;
  const auto nccl = nccl::load(self_.nccl_library);
  if (nccl) {
    nccl_ = **nccl;
    member.nccl_version = nccl_.version;
    member.nccl_path = nccl_.path;
    if (nccl_.all_reduce == nullptr) member.nccl_trouble = cat({nccl_.path, " has no ncclAllReduce"});
  } else {
    member.nccl_trouble = nccl.error().message;
  }
  return member;
}

// Each rank reads the values of all ranks, so that all decide alike.
template <class Record>
Result<std::vector<Record>> BenchSession::share(std::string_view purpose, const Record& mine, Deadline deadline) {
  Allgather round;
  round.purpose = purpose;
  round.shared = write_record(mine);
  round.read_shared.resize(self_.layout.size());
  std::iota(round.read_shared.begin(), round.read_shared.end(), Rank{0});
  round.deadline = deadline;
  const auto result = exchange_.run(round);
  if (!result) return fail(result.error());
  std::vector<Record> records;
  for (const auto& text : result->shared) {
    auto record = read_record<Record>(text);
    if (!record) return fail(ErrorCode::kDisagreement, "a rank uses another version of slurm-bootstrap");
    records.push_back(std::move(*record));
  }
  return records;
}

// No GPU anywhere is no failure; one that some ranks have and others have not, is.
std::optional<BenchEnd> BenchSession::judge(const std::vector<BenchMember>& members) const {
  const auto count = std::count_if(members.begin(), members.end(),
                                   [](const auto& member) { return member.gpu == BenchMember::Gpu::kNone; });
  if (static_cast<std::size_t>(count) == members.size()) {
    return known_to_all(
        kBenchSkipped, cat({"the benchmark is skipped, because ", used_gpu_libraries().runtime,
                            " has no GPU for any rank; ", describe_rank(self_.layout, 0), ": ", members.front().text}));
  }
  for (Rank rank = 0; rank < members.size(); ++rank) {
    const auto& member = members[rank];
    const auto who = describe_rank(self_.layout, rank);
    if (member.gpu == BenchMember::Gpu::kNone) {
      return known_to_all(1, cat({who, " has no GPU, but other ranks have one: ", member.text}));
    }
    const auto& trouble = member.gpu == BenchMember::Gpu::kRefused ? member.text : member.nccl_trouble;
    if (!trouble.empty()) return known_to_all(1, cat({who, ": ", trouble}));
  }
  return std::nullopt;
}

std::optional<BenchEnd> BenchSession::look() {
  const auto members = share("bench", describe_self(), in(plan_.timeout));
  if (!members) return BenchEnd{.sentence = members.error().message};
  for (const auto& member : *members) stage_.gpus.push_back(member.text);
  stage_.nccl_version = nccl::version_text(members->front().nccl_version);
  stage_.nccl_path = members->front().nccl_path;
  return judge(*members);
}

std::optional<BenchEnd> BenchSession::connect() {
  CommunicatorOptions options;
  options.device = self_.device;
  options.deadline = in(plan_.timeout);
  const auto begin = Deadline::clock::now();
  auto agreed = begin;
  options.agreed = &agreed;
  const auto comm = make_communicator(exchange_, self_.layout, group_, nccl_, options);
  BenchFinding mine;
  mine.ranks = static_cast<std::uint32_t>(group_.ranks.size());
  if (comm) {
    comm_ = *comm;
    mine.microseconds = milliseconds_between(begin, agreed);
    mine.more = milliseconds_between(agreed, Deadline::clock::now());
  } else {
    mine.trouble = comm.error().message;
    mine.is_late = comm.error().code == ErrorCode::kTimeout;
  }
  const auto findings = share("bench communicator", mine, options.deadline + kLateness);
  if (!findings) return BenchEnd{.sentence = comm ? findings.error().message : mine.trouble};
  if (const auto trouble = trouble_of(self_.layout, *findings); trouble) return known_to_all(1, *trouble);
  const auto fewer = [](const auto& one, const auto& other) { return one.ranks < other.ranks; };
  stage_.fewest = std::min_element(findings->begin(), findings->end(), fewer)->ranks;
  stage_.most = std::max_element(findings->begin(), findings->end(), fewer)->ranks;
  stage_.id_ms = most(*findings, &BenchFinding::microseconds);
  stage_.comm_ms = most(*findings, &BenchFinding::more);
  return std::nullopt;
}

std::optional<BenchEnd> BenchSession::measure(const std::function<void(const BenchRow&)>& show) {
  AllReduceMember member{.nccl = nccl_, .comm = comm_, .device = self_.device};
  member.ranks = static_cast<std::uint32_t>(group_.ranks.size());
  member.rank = group_.own;
  all_reduce_.emplace(std::move(member), plan_.sizes.back());
  for (const auto size : plan_.sizes) {
    plan_.task.bytes = size;
    const auto deadline = in(plan_.timeout);
    const auto result = all_reduce_->run(plan_.task, deadline);
    auto mine = result.value_or(BenchFinding());
    if (!result) mine.trouble = result.error().message;
    mine.is_late = !result && result.error().code == ErrorCode::kTimeout;
    const auto findings = share(cat({"bench of ", bytes_text(size)}), mine, deadline + kLateness);
    if (!findings) {
      const auto& own = mine.trouble;
      return BenchEnd{.sentence = own.empty() ? findings.error().message : cat({own, "; ", findings.error().message})};
    }
    if (const auto trouble = trouble_of(self_.layout, *findings); trouble) return known_to_all(1, *trouble);
    rows_.push_back(row_of(size, *findings));
    if (wrong_.empty()) wrong_ = wrong_text(self_.layout, size, *findings);
    if (show) show(rows_.back());
  }
  return std::nullopt;
}

void BenchSession::wait_for_all() { (void)share("bench end", BenchFinding(), in(kLateness)); }

}  // namespace bootstrap
