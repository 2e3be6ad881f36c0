// The round in which the ranks of a step agree on a communicator and get its unique ids.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/unique_ids.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/nccl/first_calls.h"
#include "comm/nccl/rank_conflicts.h"
#include "comm/process/secure_wipe.h"
#include "core/exchange/exchanged_values.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kIdSize = sizeof(nccl::UniqueId);
constexpr int kFirstThatShares = 23003;  // NCCL 2.30.3

std::uint32_t fingerprint_of(const std::vector<Rank>& ranks) {
  return fingerprint({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Rank)});
}

// NCCL itself takes two ranks on one GPU for an error, unless it is told to accept it (2.30.3), or that they are on
// different hosts. What it reads is read here, so that the guard refuses nothing that NCCL would do.
void describe_gpu(const IdRequest& request, RankSpec& spec) {
  const char* const may_share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (spec.nccl_version >= kFirstThatShares && may_share != nullptr && std::string_view(may_share) == "1") return;
  spec.gpu = request.gpu;
  const char* const host = std::getenv("NCCL_HOSTID");
  spec.gpu_host = host == nullptr ? 0 : fingerprint(host);
}

class IdRound {
 public:
  IdRound(const Layout& layout, const Group& group, const nccl::Functions& nccl, IdRequest request)
      : layout_(layout), group_(group), nccl_(nccl), request_(std::move(request)) {
    for (std::uint32_t root = 0; !is_outside() && root < request_.roots; ++root) {
      const auto size = static_cast<std::uint32_t>(group_.ranks.size());
      roots_.push_back(group_.ranks[rank_of_root(root, size, request_.roots)]);
    }
  }

  Result<std::vector<nccl::UniqueId>> run(Exchange& exchange);

 private:
  bool is_outside() const { return group_.ranks.empty(); }
  Rank self() const { return group_.ranks[group_.own]; }
  bool is_root() const { return std::find(roots_.begin(), roots_.end(), self()) != roots_.end(); }

  void check_fixed_root();
  void make_id();
  void make_rank_spec();
  Allgather make_round() const;
  Result<std::vector<nccl::UniqueId>> judge(const AllgatherResult& result) const;
  Status check_node(const std::vector<std::string>& local) const;
  Result<std::vector<nccl::UniqueId>> take_ids(const std::vector<std::string>& shared) const;

  const Layout& layout_;
  const Group& group_;
  const nccl::Functions& nccl_;
  IdRequest request_;
  std::vector<Rank> roots_;  // of the step, in order of root
  nccl::UniqueId id_{};
  RankSpec spec_;
};

// NCCL waits for ever where there are several roots, and fails where the address is another node's.
void IdRound::check_fixed_root() {
  if (is_outside() || request_.refusal || nccl::fixed_root() == nullptr) return;
  const bool is_one_of_many = group_.kind != GroupKind::kList && group_.ranks.size() < layout_.size();
  if (roots_.size() > 1 || is_one_of_many) {
    request_.refusal = Error{ErrorCode::kInvalid, cat({"NCCL_COMM_ID=", printable(nccl::fixed_root()),
                                                       " is in the environment: NCCL makes one communicator with "
                                                       "it, of all ranks and with one root; unset it"})};
  }
}

// Leaves a thread and a listening socket in this process until the communicator is made: so on roots alone, and not
// where it is known already that there will be none.
void IdRound::make_id() {
  if (is_outside() || request_.refusal || !is_root()) return;
  if (nccl_.get_unique_id == nullptr) {
    request_.refusal = Error{ErrorCode::kUnsupported, cat({nccl_.path, " has no ncclGetUniqueId"})};
    return;
  }
  const auto made = make_unique_id(nccl_, end_of_own_part(request_.deadline));
  if (made) id_ = (*made)->id;
  if (!made) request_.refusal = made.error();
}

void IdRound::make_rank_spec() {
  spec_.call = request_.call;
  spec_.kind = group_.kind;
  spec_.nccl_version = nccl_.version;
  if (request_.refusal) spec_.refusal = request_.refusal->message;
  if (is_outside()) return;
  spec_.size = static_cast<std::uint32_t>(group_.ranks.size());
  spec_.roots = request_.roots;
  spec_.members = fingerprint_of(group_.ranks);
  describe_gpu(request_, spec_);
}

Allgather IdRound::make_round() const {
  Allgather round;
  round.purpose = cat({spec_.call, " ", to_string(group_.kind)});
  round.local = encode(spec_);
  round.deadline = request_.deadline;
  if (is_outside()) return round;
  if (is_root()) {
    std::string shared;
    shared.reserve(kIdSize +
                   round.local.size());  // so that no copy of the id stays behind in memory that was too small
    shared.append(id_.internal.data(), kIdSize).append(round.local);
    round.shared = std::move(shared);
  }
  round.read_shared = roots_;
  round.read_local = true;
  return round;
}

// All pairs of the node, not only those with this rank: the others shall not go on and wait in NCCL for two that have
// found each other on one GPU.
Status IdRound::check_node(const std::vector<std::string>& local) const {
  std::vector<bool> is_member(layout_.size());
  for (const Rank rank : group_.ranks) is_member[rank] = true;
  const auto ranks = layout_.ranks_on(layout_.place(self()).node);
  std::vector<MemberSpec> members;
  for (std::size_t i = 0; i < ranks.size() && i < local.size(); ++i) {
    const auto spec = decode_rank_spec(local[i]);
    if (!spec) {
      return fail(ErrorCode::kDisagreement,
                  cat({describe_rank(layout_, ranks[i]), " uses another version of libbootstrap than ",
                       describe_rank(layout_, self()), "; install the same version on all nodes"}));
    }
    const MemberSpec other{ranks[i], *spec};
    if (!is_member[other.rank]) {
      if (auto status = compare(layout_, {self(), spec_}, other, false); !status) return status;
      continue;
    }
    for (const auto& member : members) {
      if (auto status = compare(layout_, member, other, true); !status) return status;
    }
    members.push_back(other);
  }
  return {};
}

Result<std::vector<nccl::UniqueId>> IdRound::take_ids(const std::vector<std::string>& shared) const {
  std::vector<nccl::UniqueId> ids(roots_.size());
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    const std::string_view text = i < shared.size() ? std::string_view(shared[i]) : std::string_view();
    const auto spec = text.size() < kIdSize ? std::nullopt : decode_rank_spec(text.substr(kIdSize));
    Status status;
    if (!spec) {
      status =
          fail(ErrorCode::kDisagreement,
               cat({describe_rank(layout_, roots_[i]), " provided no unique id, and ", describe_rank(layout_, self()),
                    " expects one from it: all members of a communicator must pass the same ranks and roots"}));
    } else if (roots_[i] != self()) {
      status = compare(layout_, {self(), spec_}, {roots_[i], *spec}, true);
    }
    if (!status) {
      wipe(ids);
      return fail(status.error());
    }
    std::memcpy(ids[i].internal.data(), text.data(), kIdSize);
  }
  return ids;
}

Result<std::vector<nccl::UniqueId>> IdRound::judge(const AllgatherResult& result) const {
  if (request_.refusal) return fail(*request_.refusal);
  if (is_outside()) return std::vector<nccl::UniqueId>();
  if (const auto status = check_node(result.local); !status) return fail(status.error());
  return take_ids(result.shared);
}

Result<std::vector<nccl::UniqueId>> IdRound::run(Exchange& exchange) {
  check_fixed_root();
  make_id();
  make_rank_spec();
  auto round = make_round();
  wipe(id_);
  auto result = exchange.run(round);
  if (round.shared) wipe(*round.shared);
  // A rank that was late itself may have had no time for the round.
  const auto& reason = !result && !request_.refusal ? result.error() : request_.refusal.value_or(Error{});
  auto ids = result ? judge(*result) : Result<std::vector<nccl::UniqueId>>(fail(reason));
  if (result) {
    for (auto& text : result->shared) wipe(text);
  }
  return ids;
}

}  // namespace

std::uint32_t default_roots(const Group& group, const nccl::Functions& nccl) {
  return nccl.init_rank_scalable == nullptr || nccl::fixed_root() != nullptr
             ? 1
             : root_count(static_cast<std::uint32_t>(group.ranks.size()));
}

Result<std::vector<nccl::UniqueId>> agree_on_ids(Exchange& exchange, const Layout& layout, const Group& group,
                                                 const nccl::Functions& nccl, IdRequest request) {
  return IdRound(layout, group, nccl, std::move(request)).run(exchange);
}

}  // namespace bootstrap
