// Finds the ranks among the processes below one task of Slurm: behind shells, launchers and containers.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/process_tree.h"

#include <map>

#include "core/program/program.h"
#include "core/program/program_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kNone = SIZE_MAX;
constexpr std::size_t kMaxChain = 6;

bool is_launcher(const ProcessSight& process) {
  if (is_shell(process.name) || tool_of(process.name) != Tool::kNone || is_launcher_name(process.name)) return true;
  std::vector<const char*> words;
  words.reserve(process.words.size() + 1);
  for (const auto& word : process.words) words.push_back(word.c_str());
  words.push_back(nullptr);
  return !process.words.empty() && is_launcher_process(static_cast<int>(process.words.size()), words.data());
}

class Tree {
 public:
  explicit Tree(const std::vector<ProcessSight>& processes)
      : processes_(processes), parents_(processes.size(), kNone), owners_(processes.size(), 0) {
    std::map<std::uint64_t, std::size_t> places;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const auto parent = places.find(processes[i].parent);
      if (parent != places.end()) parents_[i] = parent->second;
      places.emplace(processes[i].pid, i);
    }
  }

  std::vector<RankProcesses> ranks() {
    std::vector<std::size_t> tops;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      owners_[i] = parents_[i] == kNone ? 0 : owners_[parents_[i]];
      if (owners_[i] == 0 && has_own_rank(i)) {
        owners_[i] = i;
        tops.push_back(i);
      }
    }
    const bool has_workers = !tops.empty();
    if (!has_workers) tops.push_back(0);
    std::vector<RankProcesses> found;
    found.reserve(tops.size());
    for (const auto top : tops) found.push_back(rank_of(top, has_workers));
    return found;
  }

 private:
  bool has_own_rank(std::size_t i) const {
    return parents_[i] != kNone && !processes_[i].rank.empty() && processes_[i].rank != processes_[parents_[i]].rank;
  }

  RankProcesses rank_of(std::size_t top, bool is_worker) const {
    RankProcesses rank{.main = kNone, .members = {}, .chain = {}, .is_launcher = false, .is_worker = is_worker};
    auto first_program = kNone;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (owners_[i] != top) continue;
      rank.members.push_back(i);
      if (is_launcher(processes_[i])) continue;
      if (first_program == kNone) first_program = i;
      if (rank.main == kNone && !processes_[i].framework.empty()) rank.main = i;
    }
    if (rank.main == kNone) rank.main = first_program;
    rank.is_launcher = rank.main == kNone;
    if (rank.is_launcher) rank.main = rank.members.back();
    rank.chain = chain_to(rank.main);
    return rank;
  }

  std::string chain_to(std::size_t place) const {
    std::string chain = processes_[place].name;
    std::size_t length = 1;
    for (auto at = parents_[place]; at != kNone; at = parents_[at]) {
      if (++length > kMaxChain) return cat({"..., ", chain});
      chain = cat({processes_[at].name, ", ", chain});
    }
    return chain;
  }

  const std::vector<ProcessSight>& processes_;
  std::vector<std::size_t> parents_;
  std::vector<std::size_t> owners_;  // the top of the rank that the process belongs to; 0: the task
};

}  // namespace

std::vector<RankProcesses> find_ranks(const std::vector<ProcessSight>& tree) {
  return tree.empty() ? std::vector<RankProcesses>() : Tree(tree).ranks();
}

}  // namespace bootstrap
