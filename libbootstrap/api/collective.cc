// The C interface: the collective calls, which all ranks of the step make.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/job.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/nccl_library.h"
#include "core/util/text.h"
#include "probe/secrets.h"

namespace bootstrap::api {
namespace {

Deadline deadline_of(const bootstrap_t& job, int timeout_ms) {
  const auto timeout = timeout_ms > 0 ? std::chrono::milliseconds(timeout_ms) : job.timeout;
  return std::chrono::steady_clock::now() + timeout;
}

// The size is part of the purpose, so that ranks with different sizes fail before they read past an end.
Status exchange(bootstrap_t& job, const void* mine, std::size_t bytes, void* all) {
  Allgather round;
  round.purpose = cat({"exchange of ", std::to_string(bytes), " bytes"});
  if (bytes > 0) round.value.assign(static_cast<const char*>(mine), bytes);
  round.read = world_group(job.layout, job.place.rank).ranks;
  round.deadline = deadline_of(job, 0);
  const auto result = job.exchange->run(round);
  if (!result) return fail(result.error());
  auto* to = static_cast<char*>(all);
  for (const auto& value : *result) {
    if (value.size() != bytes) return fail(ErrorCode::kDisagreement, "a rank passed another number of bytes");
    to = std::copy(value.begin(), value.end(), to);
  }
  return {};
}

Status broadcast(bootstrap_t& job, void* data, std::size_t bytes, int root) {
  Allgather round;
  const auto from = static_cast<Rank>(root);
  round.purpose = cat({"broadcast of ", std::to_string(bytes), " bytes from rank ", std::to_string(root)});
  round.is_for_step = job.place.rank == from;
  if (round.is_for_step && bytes > 0) round.value.assign(static_cast<const char*>(data), bytes);
  round.read = {from};
  round.deadline = deadline_of(job, 0);
  const auto result = job.exchange->run(round);
  if (!result) return fail(result.error());
  const auto& value = result->front();
  std::copy_n(value.begin(), std::min(bytes, value.size()), static_cast<char*>(data));
  return {};
}

// A fence can succeed without a rank that died in it, and then lacks the data of its node. So this reads a value of
// each node, and all values of its own node.
Status barrier(bootstrap_t& job) {
  Allgather round;
  round.purpose = "barrier";
  round.is_for_step = job.place.local_rank == 0;
  for (Rank rank = 0; rank < job.layout.size(); ++rank) {
    const Place& place = job.layout.place(rank);
    if (place.local_rank == 0 || place.node == job.place.node) round.read.push_back(rank);
  }
  round.deadline = deadline_of(job, 0);
  const auto result = job.exchange->run(round);
  if (!result) return fail(result.error());
  return {};
}

Result<Group> group_of(const bootstrap_t& job, bootstrap_group_t group) {
  switch (group) {
    case BOOTSTRAP_WORLD:
      return world_group(job.layout, job.place.rank);
    case BOOTSTRAP_NODE:
      return node_group(job.layout, job.place.rank);
    case BOOTSTRAP_CROSS:
      return cross_group(job.layout, job.place.rank);
  }
  return fail(ErrorCode::kInvalid, cat({"there is no group ", std::to_string(static_cast<int>(group)),
                                        "; use BOOTSTRAP_WORLD, BOOTSTRAP_NODE or BOOTSTRAP_CROSS"}));
}

Result<Group> group_of_list(const bootstrap_t& job, const int* ranks, int count) {
  if (count < 0 || (count > 0 && ranks == nullptr)) {
    return fail(ErrorCode::kInvalid, "the list of ranks is missing, or its count is negative");
  }
  std::vector<Rank> list;
  for (int i = 0; i < count; ++i) {
    if (ranks[i] < 0) return fail(ErrorCode::kInvalid, cat({"the list has rank ", std::to_string(ranks[i])}));
    list.push_back(static_cast<Rank>(ranks[i]));
  }
  return list_group(job.layout, job.place.rank, std::move(list));
}

Result<CommunicatorOptions> read_comm_options(const bootstrap_t& job, const bootstrap_comm_options_t* given) {
  const auto options =
      read_options(given, bootstrap_comm_options_t BOOTSTRAP_COMM_OPTIONS_INIT, "bootstrap_comm_options_t");
  if (!options) return fail(options.error());
  if (options->timeout_ms < 0 || options->roots < 0 || options->device < -1) {
    return fail(ErrorCode::kInvalid, "bootstrap_comm_options_t has a negative member");
  }
  CommunicatorOptions wanted;
  wanted.roots = static_cast<std::uint32_t>(options->roots);
  wanted.device = options->device >= 0 ? options->device : job.device;
  wanted.nonblocking = options->nonblocking != 0;
  wanted.deadline = deadline_of(job, options->timeout_ms);
  return wanted;
}

// A rank that cannot take part still joins the exchange and sends the reason, so that the other ranks fail at once.
struct Attempt {
  Group group;
  CommunicatorOptions options;
  nccl::Functions nccl;
};

// `uses_gpu`: for a communicator. A program that asks for ids alone may choose its device later. `kind`: what the other
// ranks ask for where `group` is an error.
Attempt prepare(const bootstrap_t& job, const Result<Group>& group, const bootstrap_comm_options_t* given,
                bool uses_gpu, GroupKind kind = GroupKind::kWorld) {
  Attempt attempt;
  const auto options = read_comm_options(job, given);
  if (options) {
    attempt.options = *options;
  } else {
    attempt.options.deadline = deadline_of(job, 0);
    attempt.options.refusal = options.error();
  }
  if (group) {
    attempt.group = *group;
  } else {
    attempt.group = world_group(job.layout, job.place.rank);
    attempt.group.kind = kind;
    attempt.options.refusal = group.error();
  }
  if (attempt.options.refusal) return attempt;
  const auto device = uses_gpu ? std::optional(attempt.options.device) : std::nullopt;
  const auto nccl = prepare_nccl(job.nccl_library, device, end_of_own_part(attempt.options.deadline));
  if (nccl) attempt.nccl = **nccl;
  if (!nccl) attempt.options.refusal = nccl.error();
  return attempt;
}

Status make_comm(bootstrap_t& job, const Result<Group>& group, const bootstrap_comm_options_t* given, ncclComm** comm,
                 GroupKind kind = GroupKind::kWorld) {
  const Attempt attempt = prepare(job, group, given, true, kind);
  const auto made = make_communicator(*job.exchange, job.layout, attempt.group, attempt.nccl, attempt.options);
  if (!made) return fail(made.error());
  *comm = *made;
  return {};
}

Status make_ids(bootstrap_t& job, bootstrap_group_t kind, bootstrap_unique_id_t* ids, int count) {
  Attempt attempt = prepare(job, group_of(job, kind), nullptr, false);
  if (count < 1) {
    attempt.options.refusal =
        Error{ErrorCode::kInvalid, cat({std::to_string(count), " unique ids requested; request at least 1"})};
  }
  attempt.options.roots = static_cast<std::uint32_t>(std::max(count, 1));
  auto made = exchange_unique_ids(*job.exchange, job.layout, attempt.group, attempt.nccl, attempt.options);
  if (!made) return fail(made.error());
  static_assert(sizeof(bootstrap_unique_id_t) == sizeof(nccl::UniqueId));
  if (!made->empty()) std::memcpy(ids, made->data(), made->size() * sizeof(nccl::UniqueId));
  wipe(*made);
  return {};
}

bootstrap_status_t refuse(const char* sentence) { return report(BOOTSTRAP_ERROR_INVALID, sentence); }

}  // namespace
}  // namespace bootstrap::api

using bootstrap::api::guarded;
using bootstrap::api::refuse;

extern "C" {

bootstrap_status_t bootstrap_exchange(bootstrap_t* job, const void* mine, size_t bytes, void* all) {
  if (job == nullptr) return refuse("bootstrap_exchange: the handle is NULL");
  if (bytes > 0 && (mine == nullptr || all == nullptr)) return refuse("bootstrap_exchange: a buffer is NULL");
  return guarded("bootstrap_exchange", *job, [=] { return bootstrap::api::exchange(*job, mine, bytes, all); });
}

bootstrap_status_t bootstrap_broadcast(bootstrap_t* job, void* data, size_t bytes, int root) {
  if (job == nullptr) return refuse("bootstrap_broadcast: the handle is NULL");
  if (bytes > 0 && data == nullptr) return refuse("bootstrap_broadcast: the buffer is NULL");
  if (root < 0 || root >= bootstrap_size(job)) return refuse("bootstrap_broadcast: the root is no rank of the step");
  return guarded("bootstrap_broadcast", *job, [=] { return bootstrap::api::broadcast(*job, data, bytes, root); });
}

bootstrap_status_t bootstrap_barrier(bootstrap_t* job) {
  if (job == nullptr) return refuse("bootstrap_barrier: the handle is NULL");
  return guarded("bootstrap_barrier", *job, [=] { return bootstrap::api::barrier(*job); });
}

bootstrap_status_t bootstrap_nccl_comm(bootstrap_t* job, bootstrap_group_t group,
                                       const bootstrap_comm_options_t* options, struct ncclComm** comm) {
  if (job == nullptr || comm == nullptr)
    return refuse("bootstrap_nccl_comm: the handle, or the pointer to the communicator, is NULL");
  *comm = nullptr;
  return guarded("bootstrap_nccl_comm", *job,
                 [=] { return bootstrap::api::make_comm(*job, bootstrap::api::group_of(*job, group), options, comm); });
}

bootstrap_status_t bootstrap_nccl_comm_ranks(bootstrap_t* job, const int* ranks, int count,
                                             const bootstrap_comm_options_t* options, struct ncclComm** comm) {
  if (job == nullptr || comm == nullptr) {
    return refuse("bootstrap_nccl_comm_ranks: the handle, or the pointer to the communicator, is NULL");
  }
  *comm = nullptr;
  return guarded("bootstrap_nccl_comm_ranks", *job, [=] {
    return bootstrap::api::make_comm(*job, bootstrap::api::group_of_list(*job, ranks, count), options, comm,
                                     bootstrap::GroupKind::kList);
  });
}

bootstrap_status_t bootstrap_nccl_unique_ids(bootstrap_t* job, bootstrap_group_t group, bootstrap_unique_id_t* ids,
                                             int count) {
  if (job == nullptr || ids == nullptr) return refuse("bootstrap_nccl_unique_ids: the handle or the buffer is NULL");
  return guarded("bootstrap_nccl_unique_ids", *job, [=] { return bootstrap::api::make_ids(*job, group, ids, count); });
}

}  // extern "C"
