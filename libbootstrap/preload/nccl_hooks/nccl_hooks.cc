// The NCCL calls that make communicators, as the program reaches them with us preloaded: each passes through untouched,
// with a guard before it and a watch beside it in a rank of a step, and nothing at all elsewhere.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/nccl/cuda_device.h"
#include "comm/nccl/nccl_library.h"
#include "core/step/message_prefix.h"
#include "core/util/text.h"
#include "preload/nccl_hooks/communicator_key.h"
#include "preload/nccl_hooks/hook_bypass.h"
#include "preload/nccl_hooks/hooked_step.h"
#include "preload/nccl_hooks/real_functions.h"
#include "preload/nccl_hooks/watched_calls.h"
#include "preload/stderr_message.h"

namespace bootstrap {
namespace {

using nccl::Comm;
using nccl::ResultCode;
using nccl::UniqueId;

// Where nothing of ours is to be done, or there is no memory to do it, the program's own call is all that happens.
template <class Extra>
void try_to(Extra extra) {
  try {
    extra();
  } catch (const std::exception&) {
    // The program goes on as it would without us.
  }
}

void check_gpu(const HookedStep& step) {
  if (step.options.guard == Guard::kOff || !step.gpus) return;
  const auto current = current_gpu();
  if (!current || current->ordinal < 0) return;
  const auto wrong =
      describe_wrong_gpu(step.layout, step.rank, *step.gpus, static_cast<std::uint32_t>(current->ordinal));
  if (wrong.empty()) return;
  if (step.options.guard == Guard::kWarn) return step.warn(wrong);
  const auto fixed = use_gpu(static_cast<int>(step.gpus->ordinals.front()));
  if (!fixed) step.warn(cat({wrong, ", which failed: ", fixed.error().message}));
}

// `real` is the program's call. Not noexcept, nor is what calls it: a thread that is cancelled inside NCCL unwinds
// through here.
template <class Real>
ResultCode pass(WatchedCall call, Real real) {
  if (call.step == nullptr || call.call.ranks < 2) return real();
  try_to([&] { check_gpu(*call.step); });
  try_to([&] { begin_call(call); });
  const ResultCode code = real();
  try_to([&] { end_call(std::move(call), code); });
  return code;
}

ResultCode refuse(const char* function) {
  try_to([&] {
    say(cat({kMessagePrefix, "the program called ", function, ", but no ", nccl::product(),
             " library that has it is loaded; the call fails"}));
  });
  return nccl::kInvalidUsage;
}

// Of the NCCL that the caller would have without us; empty where there is none.
nccl::Functions functions_for(const void* caller) {
  nccl::Functions nccl;
  note_hook_called();
  try_to([&] { nccl = nccl::functions_for(caller); });
  return nccl;
}

std::uint32_t count(int number) { return number < 0 ? 0 : static_cast<std::uint32_t>(number); }

// A call that makes a communicator from unique ids.
WatchedCall call_with_ids(const char* function, const nccl::Functions& nccl, Comm* comm, int ranks, int rank,
                          const UniqueId* ids, std::size_t roots) {
  WatchedCall call;
  call.step = this_step();
  call.nccl = nccl;
  call.call.function = function;
  call.call.ranks = count(ranks);
  call.call.rank = count(rank);
  call.call.topic = topic_of(ids, roots);
  call.call.version = nccl.version;
  call.topic = call.call.topic;
  call.roots = roots;
  call.result = comm;
  return call;
}

// A call that all members of a communicator make. Not watched where its parent is not known.
WatchedCall call_with_parent(const char* function, const nccl::Functions& nccl, Comm parent, Comm* comm,
                             Callers callers = Callers::kAll) {
  WatchedCall call;
  auto known = this_step() == nullptr ? std::nullopt : call_on(nccl, parent, function, callers);
  if (!known) return call;
  call.step = this_step();
  call.nccl = nccl;
  call.call = std::move(*known);
  call.topic = call.call.topic;
  call.result = comm;
  call.parent = parent;
  return call;
}

// Not all old ranks have the unique id, and no new one has the parent.
WatchedCall call_of_grow(const nccl::Functions& nccl, Comm parent, int ranks, const UniqueId* id, int rank,
                         Comm* comm) {
  constexpr const char* kFunction = "ncclCommGrow";
  auto call = call_with_parent(kFunction, nccl, parent, comm);
  call.call.side = GrowSide::kOld;
  int old_ranks = 0;
  const bool is_known =
      parent == nullptr || (nccl.count != nullptr && nccl.count(parent, &old_ranks) == nccl::kSuccess &&
                            nccl.user_rank(parent, &rank) == nccl::kSuccess);
  if (id != nullptr && is_known) {
    auto with_id = call_with_ids(kFunction, nccl, comm, ranks, rank, id, 1);
    with_id.call.side = GrowSide::kNew;
    with_id.call.old_ranks = count(old_ranks);
    if (call.step == nullptr) {
      call = std::move(with_id);
    } else {
      call.of_new_ranks = std::move(with_id.call);
    }
  }
  call.parent = nullptr;  // it is ready all the time
  call.roots = 0;
  call.topic = mixed_topic(0, count(ranks));  // all that old and new ranks both know
  return call;
}

// One process takes many GPUs; the other ranks of its node would take them, too.
void check_gpus(const HookedStep& step, int devices, const int* list) {
  if (step.options.guard == Guard::kOff || !step.gpus) return;
  std::vector<std::uint32_t> ordinals(count(devices));
  for (int i = 0; i < devices; ++i) ordinals[count(i)] = count(list == nullptr ? i : list[i]);
  const auto taken = describe_taken_gpu(step.layout, step.rank, *step.gpus, ordinals);
  if (!taken.empty()) step.warn(taken);
}

}  // namespace
}  // namespace bootstrap

using bootstrap::functions_for;
using bootstrap::nccl::Comm;
using bootstrap::nccl::Functions;
using bootstrap::nccl::ResultCode;
using bootstrap::nccl::UniqueId;

namespace {

template <class Function>
Function hooked(const void* caller, const char* name) {
  bootstrap::note_hook_called();
  return reinterpret_cast<Function>(bootstrap::real_function(caller, name));
}

}  // namespace

// Declared as in comm/nccl/nccl_library.h, which is held against NCCL's own header. The address that each returns to
// tells which copy of NCCL its caller was linked with. NOLINTBEGIN(readability-identifier-naming): NCCL's names.
extern "C" {

BOOTSTRAP_API ResultCode ncclGetUniqueId(UniqueId* id) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.get_unique_id == nullptr) return bootstrap::refuse("ncclGetUniqueId");
  return nccl.get_unique_id(id);
}

BOOTSTRAP_API ResultCode ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_rank == nullptr) return bootstrap::refuse("ncclCommInitRank");
  return bootstrap::pass(bootstrap::call_with_ids("ncclCommInitRank", nccl, comm, ranks, rank, &id, 1),
                         [&] { return nccl.init_rank(comm, ranks, id, rank); });
}

BOOTSTRAP_API ResultCode ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, void* config) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_rank_config == nullptr) return bootstrap::refuse("ncclCommInitRankConfig");
  return bootstrap::pass(bootstrap::call_with_ids("ncclCommInitRankConfig", nccl, comm, ranks, rank, &id, 1),
                         [&] { return nccl.init_rank_config(comm, ranks, id, rank, config); });
}

BOOTSTRAP_API ResultCode ncclCommInitRankScalable(Comm* comm, int ranks, int rank, int ids, UniqueId* id,
                                                  void* config) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_rank_scalable == nullptr) return bootstrap::refuse("ncclCommInitRankScalable");
  const auto roots = id == nullptr ? 0 : bootstrap::count(ids);
  return bootstrap::pass(bootstrap::call_with_ids("ncclCommInitRankScalable", nccl, comm, ranks, rank, id, roots),
                         [&] { return nccl.init_rank_scalable(comm, ranks, rank, ids, id, config); });
}

BOOTSTRAP_API ResultCode ncclCommInitAll(Comm* comms, int devices, const int* list) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_all == nullptr) return bootstrap::refuse("ncclCommInitAll");
  const auto* const step = bootstrap::this_step();
  if (step != nullptr) bootstrap::try_to([&] { bootstrap::check_gpus(*step, devices, list); });
  return nccl.init_all(comms, devices, list);
}

BOOTSTRAP_API ResultCode ncclCommSplit(Comm comm, int color, int key, Comm* newcomm, void* config) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.split == nullptr) return bootstrap::refuse("ncclCommSplit");
  auto call = bootstrap::call_with_parent("ncclCommSplit", nccl, comm, newcomm);
  call.topic = bootstrap::mixed_topic(call.topic, static_cast<std::uint32_t>(color));
  return bootstrap::pass(std::move(call), [&] { return nccl.split(comm, color, key, newcomm, config); });
}

BOOTSTRAP_API ResultCode ncclCommShrink(Comm comm, int* left_out, int number, Comm* newcomm, void* config, int flags) {
  const void* const caller = __builtin_return_address(0);
  const auto real = hooked<bootstrap::nccl::Shrink>(caller, "ncclCommShrink");
  if (real == nullptr) return bootstrap::refuse("ncclCommShrink");
  auto call =
      bootstrap::call_with_parent("ncclCommShrink", functions_for(caller), comm, newcomm, bootstrap::Callers::kSome);
  if (left_out != nullptr && number > 0) call.call.left_out.assign(left_out, left_out + number);
  return bootstrap::pass(std::move(call), [&] { return real(comm, left_out, number, newcomm, config, flags); });
}

BOOTSTRAP_API ResultCode ncclCommGrow(Comm comm, int ranks, const UniqueId* id, int rank, Comm* newcomm, void* config) {
  const void* const caller = __builtin_return_address(0);
  const auto real = hooked<bootstrap::nccl::Grow>(caller, "ncclCommGrow");
  if (real == nullptr) return bootstrap::refuse("ncclCommGrow");
  return bootstrap::pass(bootstrap::call_of_grow(functions_for(caller), comm, ranks, id, rank, newcomm),
                         [&] { return real(comm, ranks, id, rank, newcomm, config); });
}

// What follows is called often. It is a look into a table, and NCCL's own call.
BOOTSTRAP_API ResultCode ncclGroupStart() {
  const auto real = hooked<decltype(Functions::group_start)>(__builtin_return_address(0), "ncclGroupStart");
  if (real == nullptr) return bootstrap::refuse("ncclGroupStart");
  const ResultCode code = real();
  if (code == bootstrap::nccl::kSuccess) bootstrap::enter_group();
  return code;
}

BOOTSTRAP_API ResultCode ncclGroupEnd() {
  const auto real = hooked<decltype(Functions::group_end)>(__builtin_return_address(0), "ncclGroupEnd");
  if (real == nullptr) return bootstrap::refuse("ncclGroupEnd");
  auto calls = bootstrap::leave_group();
  const ResultCode code = real();
  for (auto& call : calls) bootstrap::try_to([&] { bootstrap::end_call(std::move(call), code); });
  return code;
}

BOOTSTRAP_API ResultCode ncclGroupSimulateEnd(void* info) {
  using Function = ResultCode (*)(void*);
  const auto real = hooked<Function>(__builtin_return_address(0), "ncclGroupSimulateEnd");
  if (real == nullptr) return bootstrap::refuse("ncclGroupSimulateEnd");
  (void)bootstrap::leave_group();
  return real(info);
}

BOOTSTRAP_API ResultCode ncclCommGetAsyncError(Comm comm, ResultCode* error) {
  const auto real = hooked<decltype(Functions::get_async_error)>(__builtin_return_address(0), "ncclCommGetAsyncError");
  if (real == nullptr) return bootstrap::refuse("ncclCommGetAsyncError");
  const ResultCode code = real(comm, error);
  if (code == bootstrap::nccl::kSuccess && error != nullptr) bootstrap::note_state(comm, *error);
  return code;
}

BOOTSTRAP_API ResultCode ncclCommAbort(Comm comm) {
  const auto real = hooked<decltype(Functions::abort)>(__builtin_return_address(0), "ncclCommAbort");
  if (real == nullptr) return bootstrap::refuse("ncclCommAbort");
  bootstrap::forget(comm);
  return real(comm);
}

BOOTSTRAP_API ResultCode ncclCommDestroy(Comm comm) {
  const auto real = hooked<decltype(Functions::destroy)>(__builtin_return_address(0), "ncclCommDestroy");
  if (real == nullptr) return bootstrap::refuse("ncclCommDestroy");
  bootstrap::forget(comm);
  return real(comm);
}

}  // extern "C"

// The calls of programs and libraries, which name no version of NCCL's symbols, bind to a hidden one if it is the first
// of its object. dlsym(3) does not find it: a program that asks whether the process has NCCL, or a call of newer ones,
// hears of NCCL alone (glibc, elf/dl-lookup.c).
#define BOOTSTRAP_HIDE_FROM_DLSYM(name) __asm__(".symver " #name ", " #name "@BOOTSTRAP_NCCL_0, remove")
BOOTSTRAP_HIDE_FROM_DLSYM(ncclGetUniqueId);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommInitRank);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommInitRankConfig);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommInitRankScalable);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommInitAll);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommSplit);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommShrink);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommGrow);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclGroupStart);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclGroupEnd);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclGroupSimulateEnd);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommGetAsyncError);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommAbort);
BOOTSTRAP_HIDE_FROM_DLSYM(ncclCommDestroy);
// NOLINTEND(readability-identifier-naming)
