// NCCL communicators of a step: unique ids over the exchange, agreement of the ranks, and an end to every wait.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/nccl/cuda_device.h"
#include "comm/nccl/nccl_comm_init.h"
#include "comm/nccl/unique_ids.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// A GPU and the number of roots, as far as this rank can say before it has heard of the others.
IdRequest request_of(const Group& group, const nccl::Functions& nccl, const CommunicatorOptions& options) {
  IdRequest request{
      .call = "communicator", .roots = 1, .gpu = {}, .refusal = options.refusal, .deadline = options.deadline};
  if (group.ranks.empty()) return request;
  // Groups of one call differ in size, the last node's for one: each has as many roots as it can.
  const auto size = static_cast<std::uint32_t>(group.ranks.size());
  request.roots = options.roots == 0 ? default_roots(group, nccl) : std::min(options.roots, size);
  if (!request.refusal) {
    if (auto status = can_init(nccl, request.roots, options.nonblocking); !status) request.refusal = status.error();
  }
  if (!request.refusal && options.device >= 0) {
    if (auto status = use_gpu(options.device); !status) request.refusal = status.error();
  }
  if (request.refusal) return request;
  if (const auto gpu = current_gpu(); gpu) request.gpu = gpu->id;
  return request;
}

bool has_several_nodes(const Layout& layout, const Group& group) {
  return std::any_of(group.ranks.begin(), group.ranks.end(),
                     [&](Rank rank) { return layout.place(rank).node != layout.place(group.ranks.front()).node; });
}

}  // namespace

Group world_group(const Layout& layout, Rank rank) {
  Group group{.kind = GroupKind::kWorld, .ranks = std::vector<Rank>(layout.size()), .own = rank};
  std::iota(group.ranks.begin(), group.ranks.end(), Rank{0});
  return group;
}

Group node_group(const Layout& layout, Rank rank) {
  const Place& place = layout.place(rank);
  return {.kind = GroupKind::kNode, .ranks = layout.ranks_on(place.node), .own = place.local_rank};
}

Group cross_group(const Layout& layout, Rank rank) {
  const Place& own = layout.place(rank);
  Group group{.kind = GroupKind::kCross, .ranks = std::vector<Rank>(own.cross_size), .own = own.cross_rank};
  for (Rank other = 0; other < layout.size(); ++other) {
    const Place& place = layout.place(other);
    if (place.local_rank == own.local_rank) group.ranks[place.cross_rank] = other;
  }
  return group;
}

Result<Group> list_group(const Layout& layout, Rank rank, std::vector<Rank> ranks) {
  if (ranks.empty()) return Group{.kind = GroupKind::kList, .ranks = {}, .own = 0};
  std::vector<bool> is_listed(layout.size());
  for (const Rank member : ranks) {
    if (member >= layout.size()) {
      return fail(ErrorCode::kInvalid,
                  cat({"the list has rank ", std::to_string(member), ", but the ranks of this step are 0 to ",
                       std::to_string(layout.size() - 1)}));
    }
    if (is_listed[member]) {
      return fail(ErrorCode::kInvalid, cat({"the list has rank ", std::to_string(member), " twice"}));
    }
    is_listed[member] = true;
  }
  if (!is_listed[rank]) {
    return fail(ErrorCode::kInvalid,
                cat({"the list of ", std::to_string(ranks.size()), " ranks does not contain this rank, ",
                     std::to_string(rank), "; a rank that is in no group passes an empty list"}));
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return Group{.kind = GroupKind::kList, .ranks = std::move(ranks), .own = static_cast<std::uint32_t>(own)};
}

Result<std::vector<nccl::UniqueId>> exchange_unique_ids(Exchange& exchange, const Layout& layout, const Group& group,
                                                        std::uint32_t roots, const nccl::Functions& nccl,
                                                        const CommunicatorOptions& options) {
  // No GPU: a program that makes its communicator itself may choose its device after this call.
  IdRequest request{
      .call = "unique ids", .roots = 1, .gpu = {}, .refusal = options.refusal, .deadline = options.deadline};
  const auto size = static_cast<std::uint32_t>(group.ranks.size());
  request.roots = roots == 0 ? default_roots(group, nccl) : std::min(roots, std::max(size, 1U));
  if (!request.refusal && roots > size && size > 0) {
    request.refusal = Error{ErrorCode::kInvalid, cat({std::to_string(roots), " unique ids requested for a group of ",
                                                      std::to_string(size), " ranks; the most is one for each rank"})};
  }
  return agree_on_ids(exchange, layout, group, nccl, std::move(request));
}

Result<nccl::Comm> make_communicator(Exchange& exchange, const Layout& layout, const Group& group,
                                     const nccl::Functions& nccl, const CommunicatorOptions& options) {
  auto ids = agree_on_ids(exchange, layout, group, nccl, request_of(group, nccl, options));
  if (!ids) {
    // All ranks of this node fail alike. Ranks of other nodes may have agreed, and wait in NCCL.
    if (ids.error().code != ErrorCode::kTimeout && has_several_nodes(layout, group)) {
      (void)exchange.pass_word(RankWord{.failure = ids.error().message}, {});
    }
    return fail(ids.error());
  }
  if (options.agreed != nullptr) *options.agreed = Deadline::clock::now();
  if (group.ranks.empty()) return nullptr;
  // CUDA's current device is the thread's, and NCCL is called in another one.
  const auto device =
      options.device >= 0 ? options.device : current_gpu().value_or(CurrentGpu{.ordinal = -1, .id = {}}).ordinal;
  return init_communicator({.nccl = nccl,
                            .ids = std::move(*ids),
                            .ranks = static_cast<int>(group.ranks.size()),
                            .rank = static_cast<int>(group.own),
                            .device = device,
                            .nonblocking = options.nonblocking,
                            .who = describe_rank(layout, group.ranks[group.own]),
                            .deadline = options.deadline,
                            .exchange = group.ranks.size() > 1 ? &exchange : nullptr,
                            .layout = &layout,
                            .members = group.ranks});
}

}  // namespace bootstrap
