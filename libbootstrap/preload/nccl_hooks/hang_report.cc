// What is said of a call that waits: who has not come to it, as far as that is known.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hang_report.h"

#include "core/step/rank_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxItems = 8;

std::string after(std::chrono::seconds waited) { return cat({" after ", std::to_string(waited.count()), " s"}); }

// "rank 1", "ranks 1, 2, 5 and 12 more".
std::string write_numbers(const std::vector<std::uint32_t>& numbers) {
  std::string text = numbers.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == kMaxItems) return cat({text, " and ", std::to_string(numbers.size() - i), " more"});
    text += cat({i == 0 ? "" : ", ", std::to_string(numbers[i])});
  }
  return text;
}

std::string describe_part(const Layout& layout, const WaitingCall& call,
                          const std::vector<std::optional<std::uint32_t>>& came, std::string_view waited) {
  std::vector<bool> is_there(call.ranks);
  std::string known;
  std::size_t items = 0;
  for (Rank rank = 0; rank < came.size(); ++rank) {
    if (!came[rank] || *came[rank] >= call.ranks) continue;
    is_there[*came[rank]] = true;
    if (++items > kMaxItems) continue;
    known += cat({known.empty() ? "" : ", ", std::to_string(*came[rank]), " is ", describe_rank(layout, rank)});
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
    if (!is_there[rank]) missing.push_back(rank);
  }
  if (missing.empty()) return {};
  return cat({write_numbers(missing), " of a communicator of ", std::to_string(call.ranks),
              missing.size() == 1 ? " has" : " have", " not called ", call.function, waited,
              "; among those that have, ", known, items > kMaxItems ? ", ..." : ""});
}

}  // namespace

std::string describe_hang(const Layout& layout, const WaitingCall& call, std::chrono::seconds waited,
                          const std::vector<std::optional<std::uint32_t>>& came, ServerState server) {
  std::string text;
  if (call.ranks == layout.size()) {
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < came.size(); ++rank) {
      if (!came[rank]) missing.push_back(rank);
    }
    if (!missing.empty()) {
      text = cat({name_ranks(layout, missing), missing.size() == 1 ? " has" : " have", " not called ", call.function,
                  after(waited)});
    }
  } else {
    text = describe_part(layout, call, came, after(waited));
  }
  if (!text.empty() && server != ServerState::kAnswers) {
    text += cat({"; some may have: ", describe_server(layout, server)});
  }
  if (!text.empty()) return text;
  return cat({"all ", std::to_string(call.ranks), " ranks have called ", call.function, ", and it has not returned",
              after(waited),
              ": they cannot connect to each other; NCCL_DEBUG=INFO shows the addresses that NCCL tries"});
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
