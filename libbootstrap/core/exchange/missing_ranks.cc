// The ranks that did not join a call, as far as a query found out, and the sentence about them.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/missing_ranks.h"

#include <algorithm>
#include <iterator>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kAsWhenEnded = ", as happens when all ranks of a node have ended";

std::vector<Rank> merge(const std::vector<Rank>& some, const std::vector<Rank>& others) {
  std::vector<Rank> all;
  std::merge(some.begin(), some.end(), others.begin(), others.end(), std::back_inserter(all));
  return all;
}

// A server that no longer answers serves no other node either: a rank without an answer may have joined.
std::string describe_silencers(const Layout& layout, const MissingRanks& absence) {
  return cat({missing_ranks(layout, merge(absence.missing, absence.silencers)),
              ", and perhaps others; slurmstepd on this node stopped answering after it queried ",
              layout.host_of(absence.silencers.front()), kAsWhenEnded});
}

// "slurmstepd of this node has ended"; not for one that answers.
std::string describe_server(const Layout& layout, ServerState state) {
  if (state == ServerState::kEnded) return "slurmstepd on this node has ended";
  return cat({"slurmstepd on this node no longer answers",
              layout.node_count() > 1 ? ", as happens after it queries a node where all ranks have ended" : ""});
}

}  // namespace

std::string describe_missing_ranks(const Layout& layout, const MissingRanks& absence) {
  if (!absence.silencers.empty()) return describe_silencers(layout, absence);
  std::string text = absence.missing.empty() ? "" : missing_ranks(layout, absence.missing);
  if (!absence.unheard.empty()) {
    text += cat({text.empty() ? "" : "; ", "missing or state unknown: ", name_ranks(layout, absence.unheard)});
  }
  if (absence.server == ServerState::kAnswers) return text;
  return cat({text, "; ", describe_server(layout, absence.server)});
}

}  // namespace bootstrap
