// Words that ranks leave for each other after a round, without a fence: one that waits, and one that has failed.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/rank_presence.h"

#include <algorithm>
#include <string>

#include "comm/pmix/missing_rank_query.h"
#include "comm/pmix/pmix_session.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// A server keeps the first value of a key that it has read, so a rank that waits and fails later puts two keys.
std::string key_of(const RoundTask& task, const char* kind) {
  return cat({"bootstrap.", kind, ".", std::to_string(task.tag.sequence)});
}
std::string is_there_key(const RoundTask& task) { return key_of(task, "there"); }
std::string end_key(const RoundTask& task) { return key_of(task, "end"); }

std::string encode(const RankWord& word) { return cat({word.has_lost_peer ? "lost" : "own", "\n", word.failure}); }

// The sentence is another process's text, and goes to the user's terminal.
RankWord decode(Rank rank, std::string_view text) {
  constexpr std::size_t kMaxSentence = 1024;
  const auto end = std::min(text.find('\n'), text.size());
  const auto sentence = text.substr(std::min(end + 1, text.size()), kMaxSentence);
  return {rank, printable(sentence), text.substr(0, end) == "lost"};
}

Status leave(const PmixSession& session, const PresenceTask& task) {
  auto status = session.put(pmix::Scope::kStep, is_there_key(task), encode_tagged_value(task.tag, ""));
  if (status && !task.word->failure.empty()) {
    status = session.put(pmix::Scope::kStep, end_key(task), encode_tagged_value(task.tag, encode(*task.word)));
  }
  return status ? session.commit() : status;
}

std::vector<Wanted> wanted_of(const PresenceTask& task, const std::vector<Rank>& ranks, const std::string& key) {
  std::vector<Wanted> wanted;
  const auto node = task.layout.place(task.rank).node;
  for (const Rank rank : ranks) {
    if (rank != task.rank) wanted.push_back({rank, key, task.layout.place(rank).node != node});
  }
  return wanted;
}

// Who is there is asked first, with the care that ended nodes need. The words of those that are come at once.
RankWords ask(const PmixSession& session, const PresenceTask& task) {
  RankWords words;
  MissingRankQuery query(session, task);
  const auto absence = query.find_missing(wanted_of(task, task.asked, is_there_key(task)));
  if (!absence.is_empty()) words.missing = describe_missing_ranks(task.layout, absence);
  std::vector<Rank> there;
  std::copy_if(task.asked.begin(), task.asked.end(), std::back_inserter(there),
               [&query](Rank rank) { return query.is_here(rank); });
  const auto wanted = wanted_of(task, there, end_key(task));
  if (wanted.empty() || absence.server != ServerState::kAnswers) return words;
  const auto texts =
      session.read(wanted, steady_clock::now() + kAnswerTime, true, [&task](Rank, const std::string& text) {
        const auto value = decode_tagged_value(text);
        return value && value->tag == task.tag;
      });
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (texts[i]) words.failures.push_back(decode(wanted[i].rank, decode_tagged_value(*texts[i])->bytes));
  }
  return words;
}

Result<RankWords> run(const PmixSession& session, const PresenceTask& task) {
  if (task.word) {
    const auto left = leave(session, task);
    if (!left) return fail(left.error());
  }
  return task.asked.empty() ? RankWords() : ask(session, task);
}

}  // namespace

void run_presence(PresenceTask& task) {
  auto session = PmixSession::open(task.server, task.rank);
  task.is_connected = true;
  task.result = session ? run(*session, task) : fail(session.error());
  task.has_result = true;
  if (session) (void)session->close(steady_clock::now() + kLeaveTime);
}

}  // namespace bootstrap
