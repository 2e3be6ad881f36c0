// What is said of a call that waits: who has not come to it, and who has failed in it, as far as that is known.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hang_report.h"

#include <algorithm>

#include "comm/nccl/nccl_library.h"
#include "core/step/rank_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxItems = 8;
constexpr std::size_t kMaxFailures = 2;  // each may be long, and the first ones are the cause of the others

std::string after(std::chrono::seconds waited) { return cat({" after ", std::to_string(waited.count()), " s"}); }

std::string_view have(std::size_t count) { return count == 1 ? " has" : " have"; }

// "rank 1", "ranks 1, 2, 5 and 12 more".
std::string write_numbers(const std::vector<std::uint32_t>& numbers) {
  std::string text = numbers.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == kMaxItems) return cat({text, " and ", std::to_string(numbers.size() - i), " more"});
    text += cat({i == 0 ? "" : ", ", std::to_string(numbers[i])});
  }
  return text;
}

void add(std::string& text, const std::string& part) {
  if (!part.empty()) text += cat({text.empty() ? "" : "; ", part});
}

std::string describe_failures(const Layout& layout, const Attendances& came) {
  std::string text;
  std::size_t count = 0;
  for (Rank rank = 0; rank < came.size(); ++rank) {
    if (!came[rank] || came[rank]->failure.empty() || ++count > kMaxFailures) continue;
    add(text, cat({describe_rank(layout, rank), ": ", came[rank]->failure}));
  }
  if (count > kMaxFailures) text += cat({"; ", counted(count - kMaxFailures, "more rank"), " failed, too"});
  return text;
}

// Those that have failed have their own sentence.
std::vector<Rank> find_ended(const Layout& layout, const Attendances& came) {
  std::vector<bool> is_ended(layout.size());
  for (const auto& one : came) {
    if (!one) continue;
    for (const Rank rank : one->ended) {
      if (rank < layout.size()) is_ended[rank] = true;
    }
  }
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < layout.size(); ++rank) {
    const bool has_failed = came[rank] && !came[rank]->failure.empty();
    if (is_ended[rank] && !has_failed) ranks.push_back(rank);
  }
  return ranks;
}

// The communicator has the ranks of the step, one in each task.
bool is_world(const Layout& layout, const WaitingCall& call, const Attendances& came) {
  const bool has_several =
      std::any_of(came.begin(), came.end(), [](const auto& one) { return one && one->ranks.size() > 1; });
  return call.ranks == layout.size() && call.left_out.empty() && !has_several;
}

struct Members {
  std::vector<std::uint32_t> missing;  // in ranks of the communicator
  std::string known;                   // "0 is rank 4 (node001, local rank 0)"
};

Members find_members(const Layout& layout, const WaitingCall& call, const Attendances& came) {
  Members members;
  std::vector<bool> is_there(call.ranks);
  const auto mark = [&](const std::vector<std::uint32_t>& ranks) {
    for (const auto rank : ranks) {
      if (rank < call.ranks) is_there[rank] = true;
    }
  };
  mark(call.left_out);
  std::size_t items = 0;
  for (Rank rank = 0; rank < came.size(); ++rank) {
    if (!came[rank]) continue;
    mark(came[rank]->ranks);
    if (++items > kMaxItems) continue;
    members.known += cat({members.known.empty() ? "" : ", ", std::to_string(came[rank]->ranks.front()), " is ",
                          describe_rank(layout, rank)});
  }
  if (items > kMaxItems) members.known += ", ...";
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (!is_there[rank]) members.missing.push_back(rank);
  }
  return members;
}

std::string describe_part(const Layout& layout, const WaitingCall& call, const Attendances& came,
                          const std::vector<Rank>& ended, std::string_view waited) {
  const auto members = find_members(layout, call, came);
  if (members.missing.empty()) return {};
  // Who has ended may be one of them, or may have nothing to do with this communicator.
  const auto or_ended = ended.empty() ? "" : cat({", or is one of those that have ended: ", name_ranks(layout, ended)});
  return cat({write_numbers(members.missing), " of a communicator of ", std::to_string(call.ranks),
              have(members.missing.size()), " not called ", call.function, waited, or_ended,
              "; among those that have, ", members.known});
}

std::string describe_missing(const Layout& layout, const WaitingCall& call, const Attendances& came,
                             const std::vector<Rank>& ended, std::string_view waited) {
  if (!is_world(layout, call, came)) return describe_part(layout, call, came, ended, waited);
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < came.size(); ++rank) {
    if (!came[rank] && !std::binary_search(ended.begin(), ended.end(), rank)) missing.push_back(rank);
  }
  if (missing.empty()) return {};
  return cat({name_ranks(layout, missing), have(missing.size()), " not called ", call.function, waited});
}

// New ranks of a growing communicator cannot know of the old ones before one of those shows the unique id. Rank 0 is
// old.
bool lacks_old_ranks(const WaitingCall& call, const Attendances& came) {
  if (call.side != GrowSide::kNew) return false;
  return std::none_of(came.begin(), came.end(), [](const auto& one) {
    return one && std::find(one->ranks.begin(), one->ranks.end(), 0U) != one->ranks.end();
  });
}

std::string describe_all_there(const WaitingCall& call, std::string_view waited) {
  const auto cannot_connect = cat({"they cannot connect to each other; NCCL_DEBUG=INFO shows the addresses that ",
                                   nccl::product(), " tries", nccl::fixed_root_hint()});
  switch (call.side) {
    case GrowSide::kOld:
      return {};  // that of the new ranks says it
    case GrowSide::kNew:
      return cat({"all new ranks have called ", call.function, ", and it has not returned", waited,
                  ": a rank that was in the communicator has not called it, or ", cannot_connect});
    case GrowSide::kNone:
      break;
  }
  return cat({"all ", std::to_string(call.ranks), " ranks have called ", call.function, ", and it has not returned",
              waited, ": ", cannot_connect});
}

}  // namespace

std::string describe_versions(const Layout& layout, const Attendances& came) {
  constexpr std::string_view kOneVersion =
      ": different versions make no communicator, and some wait for each other for ever; set LD_LIBRARY_PATH, or the "
      "Python environment, to one version for all ranks";
  const auto is_known = [](const auto& one) { return one && one->version != 0; };
  const auto first = std::find_if(came.begin(), came.end(), is_known);
  const auto other = std::find_if(first, came.end(),
                                  [&](const auto& one) { return is_known(one) && one->version != (*first)->version; });
  if (other == came.end()) return {};
  const auto name = [&](auto place) { return describe_rank(layout, static_cast<Rank>(place - came.begin())); };
  return cat({nccl::product(), " ", nccl::version_text((*first)->version), " on ", name(first), " and ",
              nccl::version_text((*other)->version), " on ", name(other), kOneVersion});
}

std::string describe_hang(const Layout& layout, const WaitingCall& call, std::chrono::seconds waited,
                          const Attendances& came, ServerState server) {
  if (lacks_old_ranks(call, came)) {
    return cat({"no rank of the communicator that is to grow has called ", call.function,
                " with the unique id of the new ranks", after(waited)});
  }
  const bool in_world = is_world(layout, call, came);
  const auto ended = find_ended(layout, came);
  std::string reasons = describe_failures(layout, came);
  if (reasons.empty()) reasons = describe_versions(layout, came);
  if (in_world && !ended.empty()) add(reasons, cat({name_ranks(layout, ended), have(ended.size()), " ended"}));
  auto missing = describe_missing(layout, call, came, ended, after(waited));
  if (!missing.empty() && server != ServerState::kAnswers) {
    missing += cat({"; some may have: ", describe_server(layout, server)});
  }
  if (reasons.empty() && !missing.empty()) return missing;
  if (!reasons.empty()) {
    add(reasons, missing);
    return cat({call.function, " has not returned", after(waited), ": ", reasons});
  }
  return describe_all_there(call, after(waited));
}

std::string describe_lone_hang(const Layout& layout, Rank rank, const WaitingCall& call, std::chrono::seconds waited,
                               const Error& reason) {
  const auto who = reason.code == ErrorCode::kMissing
                       ? "; start the step with srun --mpi=pmix to see which ranks are missing"
                       : cat({"; which ranks are missing is not known: ", reason.message});
  return cat(
      {describe_rank(layout, rank), " has waited ", std::to_string(waited.count()), " s in ", call.function, who});
}

}  // namespace bootstrap
