// The NCCL calls that make communicators, as the program reaches them with us preloaded: each passes through untouched,
// with a guard before it and a watch beside it in a rank of a step, and nothing at all elsewhere.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/nccl/cuda_device.h"
#include "comm/nccl/nccl_library.h"
#include "core/util/text.h"
#include "preload/nccl_hooks/communicator_key.h"
#include "preload/nccl_hooks/hang_watchdog.h"
#include "preload/nccl_hooks/hook_bypass.h"
#include "preload/nccl_hooks/hooked_step.h"
#include "preload/nccl_hooks/multi_root.h"
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

void tell_time(const HookedStep& step, const WaitingCall& call, std::size_t roots, std::chrono::nanoseconds time,
               ResultCode code) {
  char milliseconds[32];
  (void)std::snprintf(milliseconds, sizeof milliseconds, "%.1f", static_cast<double>(time.count()) * 1e-6);
  const auto of =
      cat({" of ", std::to_string(call.ranks), " ranks", roots == 0 ? "" : cat({", ", counted(roots, "root")})});
  say(cat({kMessagePrefix, about_rank(step.id, step.rank), call.function, of, ": ", milliseconds, " ms",
           code == nccl::kSuccess ? "" : cat({", result ", std::to_string(code)})}));
}

// `real` is the program's call; `roots` is for the report, 0 where there are none.
// Not noexcept, nor is what calls it: a thread that is cancelled inside NCCL unwinds through here.
template <class Real>
ResultCode pass(const HookedStep* step, const WaitingCall& call, std::size_t roots, Real real) {
  if (step == nullptr || call.ranks < 2) return real();
  std::optional<HangWatchdog> watch;
  try_to([&] { check_gpu(*step); });
  try_to([&] { watch.emplace(*step, call); });
  const auto start = std::chrono::steady_clock::now();
  const ResultCode code = real();
  const auto time = std::chrono::steady_clock::now() - start;
  watch.reset();
  if (step->options.timing) try_to([&] { tell_time(*step, call, roots, time, code); });
  return code;
}

ResultCode refuse(const char* function) {
  try_to([&] {
    say(cat({kMessagePrefix, "the program called ", function,
             ", but no NCCL library that has it is loaded; the call fails"}));
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

WaitingCall waiting_call(const char* function, int ranks, int rank, std::uint32_t topic) {
  return {.function = function, .ranks = count(ranks), .rank = count(rank), .topic = topic};
}

// ncclCommInitRank and ...Config: the two that have one root, unless the user wants more.
template <class Real>
ResultCode init_rank(const char* function, const nccl::Functions& nccl, Comm* comm, int ranks, const UniqueId& id,
                     int rank, void* config, Real real) {
  const auto* const step = this_step();
  const auto call = waiting_call(function, ranks, rank, topic_of(&id, 1));
  std::vector<UniqueId> ids;
  if (step != nullptr) try_to([&] { ids = multi_root_ids(*step, nccl, call.ranks, call.rank); });
  const auto code = pass(step, call, ids.empty() ? 1 : ids.size(), [&] {
    if (ids.empty()) return real();
    return nccl.init_rank_scalable(comm, ranks, rank, static_cast<int>(ids.size()), ids.data(), config);
  });
  for (auto& secret : ids) ::explicit_bzero(&secret, sizeof secret);
  if (step != nullptr && code == nccl::kSuccess && comm != nullptr) remember(*comm, call);
  return code;
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
using bootstrap::nccl::ResultCode;
using bootstrap::nccl::UniqueId;

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
  return bootstrap::init_rank("ncclCommInitRank", nccl, comm, ranks, id, rank, nullptr,
                              [&] { return nccl.init_rank(comm, ranks, id, rank); });
}

BOOTSTRAP_API ResultCode ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, void* config) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_rank_config == nullptr) return bootstrap::refuse("ncclCommInitRankConfig");
  return bootstrap::init_rank("ncclCommInitRankConfig", nccl, comm, ranks, id, rank, config,
                              [&] { return nccl.init_rank_config(comm, ranks, id, rank, config); });
}

BOOTSTRAP_API ResultCode ncclCommInitRankScalable(Comm* comm, int ranks, int rank, int ids, UniqueId* id,
                                                  void* config) {
  const auto nccl = functions_for(__builtin_return_address(0));
  if (nccl.init_rank_scalable == nullptr) return bootstrap::refuse("ncclCommInitRankScalable");
  const auto roots = id == nullptr ? 0 : bootstrap::count(ids);
  const auto call = bootstrap::waiting_call("ncclCommInitRankScalable", ranks, rank, bootstrap::topic_of(id, roots));
  const auto* const step = bootstrap::this_step();
  const auto code =
      bootstrap::pass(step, call, roots, [&] { return nccl.init_rank_scalable(comm, ranks, rank, ids, id, config); });
  if (step != nullptr && code == bootstrap::nccl::kSuccess && comm != nullptr) bootstrap::remember(*comm, call);
  return code;
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
  const auto real = [&] { return nccl.split(comm, color, key, newcomm, config); };
  const auto* const step = bootstrap::this_step();
  const auto call = step == nullptr ? std::nullopt : bootstrap::call_on(comm, "ncclCommSplit");
  return call ? bootstrap::pass(step, *call, 0, real) : real();
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
// NOLINTEND(readability-identifier-naming)
