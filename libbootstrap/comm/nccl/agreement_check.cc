// What a rank says of the communicator that it is about to make, and the sentence where two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/agreement_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/step/rank_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kFormat = "claim 1";  // another number where a later version adds a line
constexpr std::size_t kLines = 10;
constexpr std::size_t kMaxWords = 1000;  // of a refusal

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kMaxWords));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

template <class Number>
bool read(std::string_view text, Number& number, std::uint64_t max) {
  const auto value = parse_unsigned(text, max);
  if (value) number = static_cast<Number>(*value);
  return value.has_value();
}

std::string both(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  return cat({describe_rank(layout, one.rank), " and ", describe_rank(layout, other.rank)});
}

// "'communicator world' (32 ranks, 3 roots)", as calls are named where ranks of different nodes disagree.
std::string wish(const RankSpec& claim) {
  const auto size = std::to_string(claim.size);
  return cat({"'", claim.call, " ", to_string(claim.kind), "' (", size, claim.size == 1 ? " rank, " : " ranks, ",
              std::to_string(claim.roots), claim.roots == 1 ? " root)" : " roots)"});
}

tl::unexpected<Error> disagree(std::string sentence) { return fail(ErrorCode::kDisagreement, std::move(sentence)); }

Status compare_calls(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member) {
  const RankSpec& a = one.claim;
  const RankSpec& b = other.claim;
  const bool is_same = a.call == b.call && a.kind == b.kind && (!is_member || (a.size == b.size && a.roots == b.roots));
  if (!is_same) {
    return disagree(cat({describe_rank(layout, one.rank), " makes ", wish(a), ", ", describe_rank(layout, other.rank),
                         " makes ", wish(b), ": all ranks must make the same calls in the same order"}));
  }
  if (is_member && a.members != b.members) {
    return disagree(cat({both(layout, one, other), " give different lists of ", std::to_string(a.size),
                         " ranks: all members of a communicator must give the same, in the same order"}));
  }
  return {};
}

Status compare_versions(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  constexpr std::string_view kHint =
      ": a communicator needs the same everywhere; set LD_LIBRARY_PATH or SLURM_BOOTSTRAP_NCCL to one libnccl.so.2 "
      "that all "
      "nodes have";
  if (one.claim.nccl_version == other.claim.nccl_version) return {};
  return disagree(
      cat({"NCCL ", nccl::version_text(one.claim.nccl_version), " on ", describe_rank(layout, one.rank), " and ",
           nccl::version_text(other.claim.nccl_version), " on ", describe_rank(layout, other.rank), kHint}));
}

Status compare_gpus(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  constexpr std::string_view kHint =
      ": each rank of a communicator needs its own; give the step a GPU for each task (srun --gpus-per-node), and each "
      "rank the device that bootstrap_device() names";
  const bool is_same = !one.claim.gpu.empty() && one.claim.gpu == other.claim.gpu &&
                       one.claim.gpu_host == other.claim.gpu_host &&
                       layout.place(one.rank).node == layout.place(other.rank).node;
  if (!is_same) return {};
  return disagree(cat({both(layout, one, other), " are both on GPU ", one.claim.gpu, kHint}));
}

}  // namespace

const char* to_string(GroupKind kind) {
  constexpr std::array<const char*, 4> kNames = {"world", "node", "cross", "list"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string encode(const RankSpec& claim) {
  return cat({kFormat, "\n", claim.call, "\n", std::to_string(static_cast<unsigned>(claim.kind)), "\n",
              std::to_string(claim.size), "\n", std::to_string(claim.roots), "\n", std::to_string(claim.members), "\n",
              std::to_string(std::max(claim.nccl_version, 0)), "\n", one_line(claim.gpu), "\n",
              std::to_string(claim.gpu_host), "\n", one_line(claim.refusal)});
}

std::optional<RankSpec> decode_rank_spec(std::string_view text) {
  const auto lines = split(text, '\n');
  if (lines.size() != kLines || lines[0] != kFormat) return std::nullopt;
  RankSpec claim;
  claim.call = lines[1];
  const bool is_right = read(lines[2], claim.kind, static_cast<std::uint64_t>(GroupKind::kList)) &&
                        read(lines[3], claim.size, UINT32_MAX) && read(lines[4], claim.roots, UINT32_MAX) &&
                        read(lines[5], claim.members, UINT32_MAX) && read(lines[6], claim.nccl_version, INT32_MAX) &&
                        read(lines[8], claim.gpu_host, UINT32_MAX);
  if (!is_right) return std::nullopt;
  claim.gpu = lines[7];
  claim.refusal = lines[9];
  return claim;
}

Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member) {
  if (other.rank < one.rank) return compare(layout, other, one, is_member);  // the same sentence on both
  if (is_member) {
    for (const auto* const side : {&one, &other}) {
      if (side->claim.refusal.empty()) continue;
      return fail(ErrorCode::kUnavailable,
                  cat({describe_rank(layout, side->rank), " cannot take part: ", side->claim.refusal}));
    }
    // Before the roots: their number follows from the version where nobody has set it.
    if (auto status = compare_versions(layout, one, other); !status) return status;
  }
  if (auto status = compare_calls(layout, one, other, is_member); !status) return status;
  return is_member ? compare_gpus(layout, one, other) : Status();
}

}  // namespace bootstrap
