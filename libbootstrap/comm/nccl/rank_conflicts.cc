// What a rank sends about its call for a communicator, and the error if two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/rank_conflicts.h"

#include <array>
#include <utility>

#include "comm/nccl/cuda_device.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string both(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  return cat({describe_rank(layout, one.rank), " and ", describe_rank(layout, other.rank)});
}

// "'communicator world' (32 ranks, 3 roots)".
std::string describe_call(const RankSpec& spec) {
  return cat({"'", spec.call, " ", to_string(spec.kind), "' (", counted(spec.size, "rank"), ", ",
              counted(spec.roots, "root"), ")"});
}

tl::unexpected<Error> disagree(std::string sentence) { return fail(ErrorCode::kDisagreement, std::move(sentence)); }

Status compare_calls(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member) {
  const RankSpec& a = one.spec;
  const RankSpec& b = other.spec;
  const bool is_same = a.call == b.call && a.kind == b.kind && (!is_member || (a.size == b.size && a.roots == b.roots));
  if (!is_same) {
    return disagree(
        cat({describe_rank(layout, one.rank), " calls ", describe_call(a), ", ", describe_rank(layout, other.rank),
             " calls ", describe_call(b), ": all ranks must make the same calls in the same order"}));
  }
  if (is_member && a.members != b.members) {
    return disagree(cat({both(layout, one, other), " pass different lists of ", std::to_string(a.size),
                         " ranks: all members of a communicator must pass the same list in the same order"}));
  }
  return {};
}

Status compare_versions(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  constexpr std::string_view kOneVersion =
      ": all ranks of a communicator need the same version; set LD_LIBRARY_PATH or SLURM_BOOTSTRAP_NCCL to a ";
  if (one.spec.nccl_version == other.spec.nccl_version) return {};
  return disagree(
      cat({nccl::product(), " ", nccl::version_text(one.spec.nccl_version), " on ", describe_rank(layout, one.rank),
           " and ", nccl::version_text(other.spec.nccl_version), " on ", describe_rank(layout, other.rank), kOneVersion,
           used_gpu_libraries().nccl_file(), " that all nodes have"}));
}

Status compare_gpus(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  constexpr std::string_view kOneGpu =
      ": each rank of a communicator needs its own; request a GPU for each task (srun --gpus-per-node), and use the "
      "device of bootstrap_device() in each rank";
  const bool is_same = !one.spec.gpu.empty() && one.spec.gpu == other.spec.gpu &&
                       one.spec.gpu_host == other.spec.gpu_host &&
                       layout.place(one.rank).node == layout.place(other.rank).node;
  if (!is_same) return {};
  return disagree(cat({both(layout, one, other), " are both on GPU ", one.spec.gpu, kOneGpu}));
}

}  // namespace

const char* to_string(GroupKind kind) {
  constexpr std::array<const char*, 4> kNames = {"world", "node", "cross", "list"};
  return kNames[static_cast<std::size_t>(kind)];
}

Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member) {
  if (other.rank < one.rank) return compare(layout, other, one, is_member);  // the same message on both
  if (is_member) {
    for (const auto* const side : {&one, &other}) {
      if (side->spec.refusal.empty()) continue;
      return fail(ErrorCode::kUnavailable,
                  cat({describe_rank(layout, side->rank), " cannot take part: ", side->spec.refusal}));
    }
    // Before the roots, whose default number depends on the version.
    if (auto status = compare_versions(layout, one, other); !status) return status;
  }
  if (auto status = compare_calls(layout, one, other, is_member); !status) return status;
  return is_member ? compare_gpus(layout, one, other) : Status();
}

}  // namespace bootstrap
