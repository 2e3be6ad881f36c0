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

// Called before anything is copied. A rank that refuses joins the round, so that calls stay in step.
std::optional<Error> refuse_buffers(const void* mine, std::size_t bytes, const void* others) {
  if (bytes > kMaxContribution) {
    return Error{ErrorCode::kLimit,
                 cat({std::to_string(bytes), " bytes are more than the ", std::to_string(kMaxContribution),
                      " that a rank may pass; this call is for ids and addresses, use NCCL or MPI "
                      "for data"})};
  }
  if (bytes > 0 && (mine == nullptr || others == nullptr)) return Error{ErrorCode::kInvalid, "a buffer is NULL"};
  return std::nullopt;
}

// A fence can succeed without a rank that has ended or died. So this reads a value of each rank, also in a barrier.
Status exchange(bootstrap_t& job, const std::string& purpose, const void* mine, std::size_t bytes, void* all) {
  Allgather round;
  round.purpose = purpose;
  round.refusal = refuse_buffers(mine, bytes, all);
  if (bytes > 0 && !round.refusal) round.value.assign(static_cast<const char*>(mine), bytes);
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

// Only the root sends a value, so only a rank itself knows that it refuses.
Status broadcast(bootstrap_t& job, void* data, std::size_t bytes, int root) {
  Allgather round;
  const bool is_rank = root >= 0 && static_cast<std::size_t>(root) < job.layout.size();
  const auto from = is_rank ? static_cast<Rank>(root) : Rank{0};
  round.purpose = cat({"broadcast of ", std::to_string(bytes), " bytes from rank ", std::to_string(root)});
  round.refusal =
      is_rank ? refuse_buffers(data, bytes, data)
              : Error{ErrorCode::kInvalid, cat({"the root, ", std::to_string(root), ", is not a rank of the step"})};
  round.is_for_step = job.place.rank == from;
  if (round.is_for_step && bytes > 0 && !round.refusal) round.value.assign(static_cast<const char*>(data), bytes);
  round.read = {from};
  round.deadline = deadline_of(job, 0);
  const auto result = job.exchange->run(round);
  if (!result) return fail(result.error());
  const auto& value = result->front();
  std::copy_n(value.begin(), std::min(bytes, value.size()), static_cast<char*>(data));
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

// A copy, since NCCL may still read it after a call was given up, and fills the members that are not set.
Result<std::string> copy_config(const void* given) {
  constexpr std::size_t kMost = 4096;
  nccl::Config head;
  std::memcpy(&head, given, sizeof head);
  if (head.magic != nccl::Config().magic || head.size < sizeof head || head.size > kMost) {
    return fail(ErrorCode::kInvalid,
                "bootstrap_comm_options_t.nccl_config is not an ncclConfig_t; start from NCCL_CONFIG_INITIALIZER");
  }
  return std::string(static_cast<const char*>(given), head.size);
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
  if (options->nccl_config == nullptr) return wanted;
  auto config = copy_config(options->nccl_config);
  if (!config) return fail(config.error());
  const auto blocking = reinterpret_cast<const nccl::Config*>(config->data())->blocking;
  if (wanted.nonblocking && blocking != 0) {
    return fail(ErrorCode::kInvalid,
                "bootstrap_comm_options_t has nonblocking, and its nccl_config does not: set both");
  }
  wanted.nonblocking = blocking == 0;
  wanted.config = std::move(*config);
  return wanted;
}

// `uses_gpu`: true for a communicator; a program that requests ids alone may choose its device later. `kind`: the kind
// of group that the other ranks pass if `group` is an error. A rank that cannot take part still joins the exchange and
// sends the reason, so that the other ranks fail at once.
CommunicatorCall prepare(const bootstrap_t& job, const Result<Group>& group, const bootstrap_comm_options_t* given,
                         bool uses_gpu, GroupKind kind) {
  CommunicatorCall call{.exchange = job.exchange.get(), .layout = job.layout};
  auto& wanted = call.options;
  const auto options = read_comm_options(job, given);
  if (options) {
    wanted = *options;
  } else {
    wanted.deadline = deadline_of(job, 0);
    wanted.refusal = options.error();
  }
  if (group) {
    call.group = *group;
  } else {
    call.group = world_group(job.layout, job.place.rank);
    call.group.kind = kind;
    wanted.refusal = group.error();
  }
  if (wanted.refusal) return call;
  const auto device = uses_gpu ? std::optional(wanted.device) : std::nullopt;
  const auto nccl = prepare_nccl(job.nccl_library, device, end_of_own_part(wanted.deadline));
  if (nccl) call.nccl = **nccl;
  if (!nccl) wanted.refusal = nccl.error();
  return call;
}

Status make_comm(bootstrap_t& job, const Result<Group>& group, const bootstrap_comm_options_t* given, ncclComm** comm,
                 GroupKind kind = GroupKind::kWorld) {
  auto call = prepare(job, group, given, true, kind);
  if (comm == nullptr) call.options.refusal = Error{ErrorCode::kInvalid, "the pointer to the communicator is NULL"};
  const auto made = make_communicator(std::move(call));
  if (!made) return fail(made.error());
  *comm = *made;
  return {};
}

Status make_ids(bootstrap_t& job, const Result<Group>& group, bootstrap_unique_id_t* ids, int count,
                GroupKind kind = GroupKind::kWorld) {
  auto call = prepare(job, group, nullptr, false, kind);
  auto& options = call.options;
  if (ids == nullptr && !call.group.ranks.empty()) options.refusal = Error{ErrorCode::kInvalid, "the buffer is NULL"};
  if (count < 1) {
    options.refusal =
        Error{ErrorCode::kInvalid, cat({std::to_string(count), " unique ids requested; request at least 1"})};
  }
  options.roots = static_cast<std::uint32_t>(std::max(count, 1));
  auto made = exchange_unique_ids(std::move(call));
  if (!made) return fail(made.error());
  static_assert(sizeof(bootstrap_unique_id_t) == sizeof(nccl::UniqueId));
  if (!made->empty()) std::memcpy(ids, made->data(), made->size() * sizeof(nccl::UniqueId));
  wipe(*made);
  return {};
}

}  // namespace
}  // namespace bootstrap::api

using bootstrap::api::guarded;

extern "C" {

bootstrap_status_t bootstrap_exchange(bootstrap_t* job, const void* mine, size_t bytes, void* all) {
  return guarded("bootstrap_exchange", job, [=] {
    // With the size: ranks with different sizes fail before they read past an end.
    const auto purpose = bootstrap::cat({"exchange of ", std::to_string(bytes), " bytes"});
    return bootstrap::api::exchange(*job, purpose, mine, bytes, all);
  });
}

bootstrap_status_t bootstrap_broadcast(bootstrap_t* job, void* data, size_t bytes, int root) {
  return guarded("bootstrap_broadcast", job, [=] { return bootstrap::api::broadcast(*job, data, bytes, root); });
}

bootstrap_status_t bootstrap_barrier(bootstrap_t* job) {
  return guarded("bootstrap_barrier", job,
                 [=] { return bootstrap::api::exchange(*job, "barrier", nullptr, 0, nullptr); });
}

bootstrap_status_t bootstrap_nccl_comm(bootstrap_t* job, bootstrap_group_t group,
                                       const bootstrap_comm_options_t* options, struct ncclComm** comm) {
  if (comm != nullptr) *comm = nullptr;
  return guarded("bootstrap_nccl_comm", job,
                 [=] { return bootstrap::api::make_comm(*job, bootstrap::api::group_of(*job, group), options, comm); });
}

bootstrap_status_t bootstrap_nccl_comm_ranks(bootstrap_t* job, const int* ranks, int count,
                                             const bootstrap_comm_options_t* options, struct ncclComm** comm) {
  if (comm != nullptr) *comm = nullptr;
  return guarded("bootstrap_nccl_comm_ranks", job, [=] {
    return bootstrap::api::make_comm(*job, bootstrap::api::group_of_list(*job, ranks, count), options, comm,
                                     bootstrap::GroupKind::kList);
  });
}

bootstrap_status_t bootstrap_nccl_unique_ids(bootstrap_t* job, bootstrap_group_t group, bootstrap_unique_id_t* ids,
                                             int count) {
  return guarded("bootstrap_nccl_unique_ids", job,
                 [=] { return bootstrap::api::make_ids(*job, bootstrap::api::group_of(*job, group), ids, count); });
}

bootstrap_status_t bootstrap_nccl_unique_ids_ranks(bootstrap_t* job, const int* ranks, int size,
                                                   bootstrap_unique_id_t* ids, int count) {
  return guarded("bootstrap_nccl_unique_ids_ranks", job, [=] {
    return bootstrap::api::make_ids(*job, bootstrap::api::group_of_list(*job, ranks, size), ids, count,
                                    bootstrap::GroupKind::kList);
  });
}

}  // extern "C"
