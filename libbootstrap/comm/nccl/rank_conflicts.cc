// What a rank sends about its call for a communicator, and the error if two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/rank_conflicts.h"

#include <utility>

#include "comm/nccl/cuda_device.h"
#include "comm/nccl/nccl_library.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string both(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  return cat({describe_rank(layout, one.rank), " and ", describe_rank(layout, other.rank)});
}

tl::unexpected<Error> disagree(std::string sentence) { return fail(ErrorCode::kDisagreement, std::move(sentence)); }

Status compare_groups(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  if (one.spec.members != other.spec.members) {
    return disagree(cat({both(layout, one, other),
                         " pass different lists of ranks: all members of a communicator must pass the same list in the "
                         "same order"}));
  }
  if (one.spec.roots == other.spec.roots) return {};
  return disagree(cat({describe_rank(layout, one.rank), " asks for ", counted(one.spec.roots, "root"), ", ",
                       describe_rank(layout, other.rank), " for ", std::to_string(other.spec.roots),
                       ": all members of a communicator must pass the same number"}));
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
                       layout.place(one.rank).node == layout.place(other.rank).node;
  if (!is_same) return {};
  return disagree(cat({both(layout, one, other), " are both on GPU ", one.spec.gpu, kOneGpu}));
}

}  // namespace

Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other) {
  if (other.rank < one.rank) return compare(layout, other, one);  // the same message on both
  for (const auto* const side : {&one, &other}) {
    if (side->spec.refusal.empty()) continue;
    return fail(ErrorCode::kUnavailable,
                cat({describe_rank(layout, side->rank), " cannot take part: ", side->spec.refusal}));
  }
  // Versions come first: the default number of roots depends on them.
  auto status = compare_versions(layout, one, other);
  if (status) status = compare_groups(layout, one, other);
  return status ? compare_gpus(layout, one, other) : status;
}

}  // namespace bootstrap
