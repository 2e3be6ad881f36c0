// What `slurm-bootstrap bench` reads and prints: sizes, the report of each rank to the others, and the table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "comm/nccl/communicator.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

// "8", "64K", "128M", "1G": bytes, K is 1024. kInvalid names `option`.
Result<std::uint64_t> parse_bytes(std::string_view option, std::string_view text);

// The reverse, in the largest unit that divides it: "128 MiB", "12 bytes".
std::string bytes_text(std::uint64_t bytes);

struct SizeRange {
  std::uint64_t least = 8;
  std::uint64_t most = std::uint64_t{128} << 20;
  std::uint64_t factor = 2;  // 2 or more
};
inline constexpr std::uint64_t kFloatBytes = 4;  // all sizes are whole numbers of these

// least, least * factor, ... up to `most`. kInvalid with the option that is wrong.
Result<std::vector<std::uint64_t>> sizes_of(const SizeRange& range);

// Bytes of one rank's buffer for each nanosecond: GB/s with G for 10^9.
double algorithm_bandwidth(std::uint64_t bytes, double microseconds);

// The rate of the slowest link, at least, with any algorithm: an all-reduce of n ranks moves 2(n-1)/n of the buffer
// over it (nccl-tests, doc/PERFORMANCE.md). 0 for one rank, which moves nothing.
double bus_bandwidth(std::uint64_t bytes, double microseconds, std::uint32_t ranks);

struct AllReduceTask {
  std::uint64_t bytes = 0;  // of the buffer of each rank: floats, added up
  std::uint32_t iterations = 20;
  std::uint32_t warmup = 5;
  bool is_in_place = false;  // what is timed; the sums are verified both in place and out of place
  bool is_checked = true;
};

struct BenchPlan {
  std::vector<std::uint64_t> sizes;  // ascending, not empty
  GroupKind group = GroupKind::kWorld;
  AllReduceTask task;  // but for the size
  std::chrono::seconds timeout{60};
};

// The GPU and NCCL of a rank, or why it cannot take part.
struct BenchMember {
  enum class Gpu : std::uint8_t { kNone, kRefused, kThere, kLast = kThere };
  Gpu gpu = Gpu::kNone;
  std::string text;  // the GPU's name, or why there is none
  int nccl_version = 0;
  std::string nccl_path;
  std::string nccl_trouble;  // empty: NCCL is there
};

// A value that is not the sum.
struct WrongValue {
  bool is_in_place = false;
  std::uint64_t index = 0;
  double found = 0;
  double expected = 0;
};

// A rank's result of one step of the bench: the making of the communicator, or one size.
struct BenchFinding {
  double microseconds = 0;  // the unique ids, or one all-reduce
  double more = 0;          // the communicator after them
  std::uint32_t ranks = 0;  // of its communicator
  std::uint64_t wrong = 0;  // values that are not the sum
  WrongValue first;         // where wrong > 0
  bool is_late = false;     // the trouble is that it did not end, perhaps because of another rank
  std::string trouble;      // one sentence; empty: it was done
};

inline auto fields_of(BenchMember& member) {
  return std::tie(member.gpu, member.text, member.nccl_version, member.nccl_path, member.nccl_trouble);
}

inline auto fields_of(BenchFinding& finding) {
  auto& first = finding.first;
  return std::tie(finding.microseconds, finding.more, finding.ranks, finding.wrong, first.is_in_place, first.index,
                  first.found, first.expected, finding.is_late, finding.trouble);
}

// The ranks and GPUs of the bench.
struct BenchStage {
  std::string step;  // "12.0"
  std::uint32_t ranks = 0;
  std::uint32_t nodes = 0;
  std::uint32_t fewest = 0;       // ranks of the smallest communicator
  std::uint32_t most = 0;         // and of the largest
  std::vector<std::string> gpus;  // names in order of rank
  std::string nccl_version;
  std::string nccl_path;
  double id_ms = 0;    // of the slowest rank
  double comm_ms = 0;  // likewise
};

struct BenchRow {
  std::uint64_t bytes = 0;
  double microseconds = 0;  // one all-reduce on the slowest rank
  double algorithm = 0;     // GB/s
  double bus = 0;           // GB/s
  std::uint64_t wrong = 0;  // values of all ranks
};

// Takes the slowest rank, with the size of its own communicator. Precondition: not empty, and without trouble.
BenchRow row_of(std::uint64_t bytes, const std::vector<BenchFinding>& findings);
double average_bus(const std::vector<BenchRow>& rows);

std::string head_text(const BenchStage& stage, const BenchPlan& plan);
std::string row_text(const BenchRow& row, bool is_checked);
std::string foot_text(const std::vector<BenchRow>& rows);
std::string bench_json(const BenchStage& stage, const BenchPlan& plan, const std::vector<BenchRow>& rows);

// "rank 3 (node002, local rank 1) and 2 more: NCCL failed"; nothing if no rank has trouble. Ranks that are only late
// are left out if others report an error.
std::optional<std::string> trouble_of(const Layout& layout, const std::vector<BenchFinding>& findings);
// "rank 3 (node002, local rank 1) has 5 wrong values of 1024, the first is number 17: 12 where the sum is 13 (in
// place)".
std::string wrong_text(const Layout& layout, std::uint64_t bytes, const std::vector<BenchFinding>& findings);

}  // namespace bootstrap
