// NCCL communicators of a step: unique ids over the exchange, agreement of the ranks, a deadline for every wait.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "comm/nccl/cuda_device.h"
#include "core/exchange/exchanged_values.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using Ids = Result<std::vector<nccl::UniqueId>>;

constexpr std::size_t kIdSize = sizeof(nccl::UniqueId);

// Its last owner, which may be an abandoned thread, wipes the id.
using MadeId = std::shared_ptr<nccl::UniqueId>;

// In a larger group a rank compares only the ranks of its node: each value costs a request to the server.
constexpr std::size_t kMostCompared = 512;

// The round in which the ranks of a step agree on a communicator and get its unique ids. Each rank compares all ranks
// of its group, so that all get the same error at once, and reads the ids of the roots.
class IdRound {
 public:
  // `what`: what the call makes, for messages. `gpu`: the GPU of this rank; empty: unknown, and not compared.
  IdRound(const CommunicatorCall& call, const char* what, const std::string& gpu)
      : call_(call), layout_(call.layout), group_(call.group), what_(what), refusal_(call.options.refusal) {
    spec_.gpu = gpu;
    if (is_outside()) return;
    spec_.roots = roots_of(call);
    const auto size = static_cast<std::uint32_t>(group_.ranks.size());
    for (std::uint32_t root = 0; root < spec_.roots; ++root) {
      roots_.push_back(group_.ranks[rank_of_root(root, size, spec_.roots)]);
    }
    read_ = group_.ranks;
    const auto node = layout_.place(self()).node;
    if (size > kMostCompared) std::erase_if(read_, [&](Rank rank) { return layout_.place(rank).node != node; });
    read_.insert(read_.end(), roots_.begin(), roots_.end());
    std::sort(read_.begin(), read_.end());
    read_.erase(std::unique(read_.begin(), read_.end()), read_.end());
  }

  // The ids in order of root; none for a rank that is in no group.
  Ids run() {
    check_fixed_root();
    make_id();
    complete_spec();
    auto round = make_round();
    wipe(id_);
    auto result = call_.exchange->run(round);
    wipe(round.value);
    // A rank that refuses may have had no time for the round: its own reason is the better one.
    if (refusal_) return fail(*refusal_);
    if (!result) return fail(result.error());
    auto ids = judge(*result);
    for (auto& text : *result) wipe(text);
    return ids;
  }

 private:
  bool is_outside() const { return group_.ranks.empty(); }
  Rank self() const { return group_.ranks[group_.own]; }
  bool is_root() const { return std::find(roots_.begin(), roots_.end(), self()) != roots_.end(); }

  // NCCL_COMM_ID would make NCCL wait forever for several roots, and fail if the address is another node's.
  void check_fixed_root() {
    if (is_outside() || refusal_ || nccl::fixed_root() == nullptr) return;
    const bool is_one_of_many = group_.kind != GroupKind::kList && group_.ranks.size() < layout_.size();
    if (roots_.size() > 1 || is_one_of_many) {
      refusal_ = Error{ErrorCode::kInvalid, cat({"NCCL_COMM_ID=", printable(nccl::fixed_root()),
                                                 " is in the environment: NCCL makes one communicator with "
                                                 "it, of all ranks and with one root; unset it"})};
    }
  }

  // On roots alone, and not after a refusal: an id keeps a thread and a listening socket in this process until the
  // communicator is made.
  void make_id() {
    if (is_outside() || refusal_ || !is_root()) return;
    const auto work = [nccl = call_.nccl]() -> Result<MadeId> {
      const MadeId made(new nccl::UniqueId{}, [](nccl::UniqueId* id) {
        wipe(*id);
        delete id;
      });
      const auto code = nccl.get_unique_id(made.get());
      if (code == nccl::kSuccess) return made;
      return fail(ErrorCode::kUnavailable, nccl::describe(nccl, "ncclGetUniqueId", code, nullptr));
    };
    const auto made = call_with_deadline<MadeId>("ncclGetUniqueId", work, end_of_own_part(call_.options.deadline));
    if (made) {
      id_ = **made;
    } else {
      refusal_ = made.error();
    }
  }

  void complete_spec() {
    spec_.nccl_version = call_.nccl.version;
    if (refusal_) spec_.refusal = refusal_->message;
    if (is_outside()) return;
    spec_.members =
        fingerprint({reinterpret_cast<const char*>(group_.ranks.data()), group_.ranks.size() * sizeof(Rank)});
    // With these variables NCCL may accept two ranks on one GPU, and compares the GPUs itself.
    if (std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr || std::getenv("NCCL_HOSTID") != nullptr) {
      spec_.gpu.clear();
    }
  }

  // A rank's value is its spec. A root appends a line break and its id.
  Allgather make_round() const {
    constexpr std::array kNames = {"world", "node", "cross", "list"};
    Allgather round;
    round.purpose = cat({what_, " ", kNames[static_cast<std::size_t>(group_.kind)]});
    round.value = write_record(spec_);
    round.deadline = call_.options.deadline;
    if (is_outside()) {
      round.is_for_step = false;
      return round;
    }
    // A rank that refuses may be a root in another rank's list.
    round.is_for_step = is_root() || refusal_ || group_.ranks.size() <= kMostCompared;
    if (is_root()) {
      round.value.reserve(round.value.size() + 1 + kIdSize);  // appending must leave no copy of the id in freed memory
      round.value.append("\n").append(id_.internal.data(), kIdSize);
    }
    if (!refusal_) round.read = read_;  // a refusing rank reads none: others may list other roots
    return round;
  }

  // Compares all pairs, also those without this rank: if two other ranks have one GPU, no rank may wait in NCCL.
  Ids judge(const RankValues& values) const {
    std::vector<RankSpec> members;
    for (std::size_t i = 0; i < read_.size(); ++i) {
      if (values[i].empty()) return fail(without_id(read_[i]));
      auto spec = read_record<RankSpec>(std::string_view(values[i]).substr(0, values[i].find('\n')));
      if (!spec) {
        return fail(ErrorCode::kDisagreement,
                    cat({describe_rank(layout_, read_[i]), " uses another version of libbootstrap than ",
                         describe_rank(layout_, self()), "; install the same version on all nodes"}));
      }
      spec->rank = read_[i];
      for (const auto& member : members) {
        if (auto status = compare(layout_, member, *spec); !status) return fail(status.error());
      }
      members.push_back(std::move(*spec));
    }
    return take_ids(values);
  }

  Ids take_ids(const RankValues& values) const {
    std::vector<nccl::UniqueId> ids(roots_.size());
    for (std::size_t i = 0; i < roots_.size(); ++i) {
      const auto place = std::lower_bound(read_.begin(), read_.end(), roots_[i]) - read_.begin();
      const auto& text = values[static_cast<std::size_t>(place)];
      const auto at = std::min(text.find('\n'), text.size());
      if (text.size() != at + 1 + kIdSize) {
        wipe(ids);
        return fail(without_id(roots_[i]));
      }
      std::memcpy(ids[i].internal.data(), text.data() + at + 1, kIdSize);
    }
    return ids;
  }

  Error without_id(Rank rank) const {
    return {ErrorCode::kDisagreement,
            cat({describe_rank(layout_, rank), " provided no unique id, and ", describe_rank(layout_, self()),
                 " expects one from it: all members of a communicator must pass the same ranks and roots"})};
  }

  const CommunicatorCall& call_;
  const Layout& layout_;
  const Group& group_;
  const char* what_;
  std::optional<Error> refusal_;
  std::vector<Rank> roots_;  // of the step, in order of root
  std::vector<Rank> read_;   // ascending: the ranks that are compared, and the roots
  nccl::UniqueId id_{};
  RankSpec spec_;
};

// Groups of one call may differ in size, such as the last node's: a small group has one root for each rank.
std::optional<Error> refuse_roots(const Layout& layout, const Group& group, std::uint32_t roots) {
  const std::size_t most = group.kind == GroupKind::kNode    ? layout.most_on_a_node()
                           : group.kind == GroupKind::kCross ? layout.node_count()
                           : group.ranks.empty()             ? layout.size()
                                                             : group.ranks.size();
  if (roots <= most) return std::nullopt;
  return Error{ErrorCode::kInvalid, cat({std::to_string(roots), " roots requested for a communicator of ",
                                         std::to_string(most), " ranks; the most is one for each rank"})};
}

}  // namespace

Status compare(const Layout& layout, const RankSpec& one, const RankSpec& other) {
  constexpr std::string_view kOneVersion =
      ": all ranks of a communicator need the same version; set LD_LIBRARY_PATH or SLURM_BOOTSTRAP_NCCL to a ";
  constexpr std::string_view kOneGpu =
      ": each rank of a communicator needs its own; request a GPU for each task (srun --gpus-per-node), and use the "
      "device of bootstrap_device() in each rank";
  if (other.rank < one.rank) return compare(layout, other, one);  // the same message on both
  const auto name = [&layout](const RankSpec& spec) { return describe_rank(layout, spec.rank); };
  for (const auto* const side : {&one, &other}) {
    if (side->refusal.empty()) continue;
    return fail(ErrorCode::kUnavailable, cat({name(*side), " cannot take part: ", side->refusal}));
  }
  const auto disagree = [](std::string sentence) { return fail(ErrorCode::kDisagreement, std::move(sentence)); };
  // Versions come first: the default number of roots depends on them.
  if (one.nccl_version != other.nccl_version) {
    return disagree(cat({nccl::product(), " ", nccl::version_text(one.nccl_version), " on ", name(one), " and ",
                         nccl::version_text(other.nccl_version), " on ", name(other), kOneVersion,
                         used_gpu_libraries().nccl_file(), " that all nodes have"}));
  }
  if (one.members != other.members) {
    return disagree(cat({name(one), " and ", name(other),
                         " pass different lists of ranks: all members of a communicator must pass the same list in the "
                         "same order"}));
  }
  if (one.roots != other.roots) {
    return disagree(cat({name(one), " asks for ", counted(one.roots, "root"), ", ", name(other), " for ",
                         std::to_string(other.roots), ": all members of a communicator must pass the same number"}));
  }
  const bool is_one_node = layout.place(one.rank).node == layout.place(other.rank).node;
  if (one.gpu.empty() || one.gpu != other.gpu || !is_one_node) return {};
  return disagree(cat({name(one), " and ", name(other), " are both on GPU ", one.gpu, kOneGpu}));
}

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

std::uint32_t roots_of(const CommunicatorCall& call) {
  const auto size = static_cast<std::uint32_t>(call.group.ranks.size());
  if (call.options.roots != 0) return std::min(call.options.roots, std::max(size, 1U));
  return call.nccl.init_rank_scalable == nullptr || nccl::fixed_root() != nullptr ? 1 : root_count(size);
}

Ids exchange_unique_ids(CommunicatorCall call) {
  const auto size = call.group.ranks.size();
  auto& options = call.options;
  if (!options.refusal && options.roots > size && size > 0) {
    options.refusal =
        Error{ErrorCode::kInvalid, cat({std::to_string(options.roots), " unique ids requested for a group of ",
                                        std::to_string(size), " ranks; the most is one for each rank"})};
  }
  // Without a GPU: a program that makes its communicator itself may choose its device after this call.
  return IdRound(call, "unique ids", {}).run();
}

Result<nccl::Comm> make_communicator(CommunicatorCall call) {
  const auto& ranks = call.group.ranks;
  auto& options = call.options;
  if (!options.refusal) options.refusal = refuse_roots(call.layout, call.group, options.roots);
  CurrentGpu gpu{.ordinal = -1, .id = {}};
  if (!options.refusal && !ranks.empty()) {
    auto status = can_init(call.nccl, roots_of(call));
    if (status && options.device >= 0) status = use_gpu(options.device);
    if (status) {
      gpu = current_gpu().value_or(gpu);
    } else {
      options.refusal = status.error();
    }
  }
  auto ids = IdRound(call, "communicator", gpu.id).run();
  if (!ids) {
    // All ranks of this node fail alike. Ranks of other nodes may have agreed, and wait in NCCL.
    const auto node_of = [&call](Rank rank) { return call.layout.place(rank).node; };
    const bool has_several_nodes =
        std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return node_of(rank) != node_of(ranks.front()); });
    if (ids.error().code != ErrorCode::kTimeout && has_several_nodes) {
      (void)call.exchange->share_reports(RankReport{.failure = ids.error().message}, {});
    }
    return fail(ids.error());
  }
  if (ranks.empty()) return nullptr;
  // CUDA's current device belongs to a thread, and another thread calls NCCL.
  if (options.device < 0) options.device = gpu.ordinal;
  if (ranks.size() == 1) call.exchange = nullptr;
  return init_communicator(std::move(call), std::move(*ids));
}

}  // namespace bootstrap
