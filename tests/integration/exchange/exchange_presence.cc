// Ranks that announce themselves and ask who else has: exchange_presence ABSENT LATE (ranks; -1 for none). The late
// one comes after a second. SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "comm/pmix/rank_presence.h"
#include "core/plan/plan_from_environment.h"
#include "core/step/rank_names.h"
#include "probe/read_environment.h"

namespace {

using bootstrap::Rank;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

int announce_and_ask(const bootstrap::TaskPlan& task, const bootstrap::Environment& environment, Rank rank) {
  const auto& layout = task.facts.layout;
  const auto start = steady_clock::now();
  const auto presence =
      bootstrap::RankPresence::open(task.facts.id, layout, rank, environment, start + milliseconds(5000));
  if (!presence) {
    (void)std::fprintf(stderr, "%s\n", presence.error().message.c_str());
    return 4;
  }
  if (!(*presence)->say("test", std::to_string(rank))) return 6;
  std::vector<Rank> ranks(layout.size());
  std::iota(ranks.begin(), ranks.end(), Rank{0});
  const auto [values, server] = (*presence)->ask("test", ranks, steady_clock::now() + milliseconds(3000));
  std::vector<Rank> missing;
  for (const Rank one : ranks) {
    if (!values[one]) missing.push_back(one);
    if (values[one] && *values[one] != std::to_string(one)) return 5;
  }
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  (void)std::printf("rank %u after %d ms: %s%s\n", rank, static_cast<int>(took.count()),
                    missing.empty() ? "all are there" : bootstrap::missing_ranks(layout, missing).c_str(),
                    server == bootstrap::ServerState::kAnswers ? "" : ", or not heard");
  (void)std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const auto environment = bootstrap::process_environment();
  const auto task = bootstrap::read_task_plan(environment);
  if (!task || count != 3) return 3;
  const Rank rank = task->facts.local_ranks.front();
  // The others' sessions are open for as long as they ask, and then for a while: nothing may have happened to them.
  if (static_cast<int>(rank) == std::atoi(words[1])) return static_cast<int>(::sleep(6));
  if (static_cast<int>(rank) == std::atoi(words[2])) (void)::sleep(1);
  const int code = announce_and_ask(*task, environment, rank);
  (void)::sleep(2);
  return code;
}
