// The ranks that are out of step, in sentences that claim no more than was seen.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/findings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/util/text.h"
#include "tools/status/python_stack.h"
#include "tools/status/rank_groups.h"

namespace bootstrap {
namespace {

constexpr const char* kMaybe = "; it may be slow, in a checkpoint, or stuck";
constexpr std::uint64_t kMuchWritten = 10240;  // KiB in a second
constexpr std::uint64_t kIdle = 20;            // percent of a core

using Choice = std::function<bool(const SeenRank&)>;

class Finder {
 public:
  Finder(const std::vector<SeenRank>& ranks, const std::optional<MeetingPoint>& meeting)
      : ranks_(ranks), meeting_(meeting) {}

  std::vector<Finding> run(const std::vector<std::string>& silent_nodes) {
    if (!silent_nodes.empty()) add_silent(silent_nodes);
    add_states();
    add_progress();
    add_unread();
    if (found_.empty()) add_differences();
    if (found_.empty()) add_nothing();
    return std::move(found_);
  }

 private:
  RankGroup choose(const Choice& is_meant) const {
    RankGroup group;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (is_meant(ranks_[i])) group.push_back(i);
    }
    return group;
  }

  std::vector<std::uint64_t> numbers_of(const RankGroup& group) const {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(group.size());
    for (const auto place : group) numbers.push_back(ranks_[place].sight.rank);
    return numbers;
  }

  std::string rest(const RankGroup& group) const {
    const auto count = ranks_.size() - group.size();
    return count == 1 ? "the other rank" : cat({"the other ", std::to_string(count), " ranks"});
  }

  // `one` and `several`: what is said of one rank, and of several.
  void add(std::string kind, const RankGroup& group, std::string_view one, std::string_view several) {
    if (group.empty()) return;
    found_.push_back(
        {std::move(kind), numbers_of(group), cat({name_group(ranks_, group), " ", group.size() == 1 ? one : several})});
  }

  void add_silent(const std::vector<std::string>& nodes) {
    std::string text;
    for (std::size_t i = 0; i < nodes.size() && i < 4; ++i) text += cat({i == 0 ? "" : ", ", printable(nodes[i])});
    if (nodes.size() > 4) text += cat({" and ", std::to_string(nodes.size() - 4), " more nodes"});
    const auto group =
        choose([](const SeenRank& rank) { return rank.phase == Phase::kUnknown && rank.sight.pid == 0; });
    const auto whose =
        group.empty() ? "" : cat({" (rank", group.size() == 1 ? " " : "s ", list_ranks(ranks_, group), ")"});
    found_.push_back({"no_answer", numbers_of(group), cat({text, whose, " did not answer"})});
  }

  void add_states() {
    add("stopped", choose([](const SeenRank& rank) { return rank.sight.state == "T"; }), "is stopped (SIGSTOP)",
        "are stopped (SIGSTOP)");
    add("traced", choose([](const SeenRank& rank) { return rank.sight.state == "t"; }), "is stopped by a debugger",
        "are stopped by a debugger");
    for (const bool is_disk : {true, false}) {
      const auto group = choose(
          [&](const SeenRank& rank) { return rank.phase == Phase::kDiskWait && (rank.sight.state == "D") == is_disk; });
      const auto what = group.empty() ? ""
                        : is_disk     ? std::string("a disk or file system (D state)")
                                      : printable(cat({"a ", ranks_[group.front()].sight.waits}));
      add("disk_wait", group, cat({"waits for ", what}), cat({"wait for ", what}));
    }
    add("zombie", choose([](const SeenRank& rank) { return rank.phase == Phase::kZombie; }),
        "has ended, and its parent has not noticed (zombie)",
        "have ended, and their parents have not noticed (zombies)");
    const auto ended = choose([](const SeenRank& rank) { return rank.phase == Phase::kEnded; });
    const auto left = std::to_string(ranks_.size() - ended.size());
    const auto rest = cat({"; ", left, left == "1" ? " rank is there" : " ranks are there"});
    add("ended", ended, cat({"has ended", rest}), cat({"have ended", rest}));
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].sight.child.empty()) {
        add("child", {i}, cat({"has a child process that is held up: ", printable(ranks_[i].sight.child)}), "");
      }
    }
  }

  // Of ranks that are behind the others.
  void add_progress() {
    const auto launchers = choose([](const SeenRank& rank) { return rank.phase == Phase::kLauncher; });
    if (launchers.size() < ranks_.size()) {
      const auto what = launchers.empty() ? "" : printable(ranks_[launchers.front()].sight.chain);
      add("launcher_only", launchers, cat({"runs only ", what, "; no program runs below"}),
          cat({"run only ", what, "; no program runs below"}));
    }
    const auto before = choose([](const SeenRank& rank) { return rank.phase == Phase::kNoFramework; });
    const auto loaded =
        std::find_if(ranks_.begin(), ranks_.end(), [](const SeenRank& rank) { return !rank.sight.framework.empty(); });
    if (!before.empty() && loaded != ranks_.end()) {
      const auto& sight = ranks_[before.front()].sight;
      const auto below = sight.chain.rfind(", ") == std::string::npos
                             ? ""
                             : cat({" (below ", printable(sight.chain.substr(0, sight.chain.rfind(", "))), ")"});
      const auto wait = before.size() > 1 || sight.waits.empty() || sight.waits == sight.program
                            ? ""
                            : cat({"; it waits in ", printable(sight.waits)});
      const auto what = cat({" ", printable(sight.program), below, " without ", loaded->sight.framework, ", which ",
                             rest(before), ranks_.size() - before.size() == 1 ? " has loaded" : " have loaded", wait});
      add("no_framework", before, cat({"runs", what}), cat({"run", what}));
    }
    if (meeting_) add_unconnected();
    const auto input = choose(
        [](const SeenRank& rank) { return rank.sight.is_still && rank.sight.waits == "read of standard input"; });
    if (input.size() < ranks_.size()) {
      add("input", input, "waits for input (read of standard input)", "wait for input (read of standard input)");
    }
  }

  void add_unconnected() {
    const auto group = choose([](const SeenRank& rank) { return rank.phase == Phase::kBefore; });
    std::size_t connected = 0;
    for (const bool is_connected : meeting_->connected) connected += is_connected ? 1 : 0;
    const auto others =
        meeting_->is_listened ? std::string("where a rank listens")
        : connected + group.size() == ranks_.size()
            ? cat({"where the other ", std::to_string(connected), connected == 1 ? " is" : " are", " connected"})
            : cat({"where ", counted(connected, "rank"), connected == 1 ? " is" : " are", " connected"});
    const auto what = cat({" no connection to ", meeting_->name, " of ", printable(meeting_->node), ", ", others});
    auto own = std::string();
    if (group.size() == 1) own = other_port(ranks_[group.front()].sight);
    add("not_connected", group, cat({"has", what, own}), cat({"have", what}));
  }

  // A rank that was started with another MASTER_PORT, or tries another port now.
  std::string other_port(const RankSight& sight) const {
    for (const auto& name : sight.meetings) {
      const auto variable = name.substr(0, name.find(' '));
      if (meeting_->name.starts_with(cat({variable, " "})) && meeting_->name != name) {
        return cat({"; it was started with ", printable(name)});
      }
    }
    const auto tried = std::find_if(sight.tries.begin(), sight.tries.end(),
                                    [&](std::uint64_t port) { return port != meeting_->port; });
    return tried == sight.tries.end() ? "" : cat({"; it tries port ", std::to_string(*tried)});
  }

  void add_unread() {
    std::map<std::string, RankGroup> by_reason;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].phase == Phase::kUnknown && !ranks_[i].sight.unread.empty()) {
        by_reason[ranks_[i].sight.unread].push_back(i);
      }
    }
    for (const auto& [reason, group] : by_reason) {
      add("unknown", group, cat({"is unknown: ", printable(reason)}), cat({"are unknown: ", printable(reason)}));
    }
  }

  void add_differences() {
    add_by_stack();
    if (!found_.empty()) return;
    std::vector<std::uint64_t> cpu;
    for (const auto& rank : ranks_) cpu.push_back(rank.sight.cpu);
    const auto apart = far_apart(cpu);
    if (!apart.empty()) return add_by_cpu(apart);
    if (std::all_of(cpu.begin(), cpu.end(), [](std::uint64_t percent) { return percent <= kIdle; })) add_by_wait();
  }

  static std::string percent(std::vector<std::uint64_t> values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return *least == *most ? cat({std::to_string(*least), " %"})
                           : cat({std::to_string(*least), "-", std::to_string(*most), " %"});
  }

  void add_by_cpu(const std::vector<bool>& apart) {
    RankGroup group;
    std::vector<std::uint64_t> own;
    std::vector<std::uint64_t> others;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (apart[i]) group.push_back(i);
      (apart[i] ? own : others).push_back(ranks_[i].sight.cpu);
    }
    const auto& sight = ranks_[group.front()].sight;
    std::string what = cat({percent(own), " CPU"});
    if (group.size() == 1 && sight.is_still && !sight.waits.empty()) {
      what += cat({", waits in ", printable(sight.waits)});
    }
    if (group.size() == 1 && sight.written >= kMuchWritten) {
      what += cat({", wrote ", std::to_string(sight.written >> 10), " MiB in a second"});
    }
    differ(group, cat({what, "; ", rest_short(group), " ", percent(others)}));
  }

  std::string rest_short(const RankGroup& group) const {
    return ranks_.size() - group.size() == 1 ? "the other" : "the others";
  }

  void differ(const RankGroup& group, std::string_view what) {
    add("differs", group, cat({"differs: ", what, kMaybe}),
        cat({"differ: ", what, replaced(kMaybe, "it may", "they may")}));
  }

  // Ranks outside the largest group, where that has more than half of all ranks.
  template <class Key>
  std::optional<std::pair<RankGroup, RankGroup>> minority(const std::map<Key, RankGroup>& groups) const {
    const auto largest = std::max_element(groups.begin(), groups.end(), [](const auto& one, const auto& other) {
      return one.second.size() < other.second.size();
    });
    if (largest == groups.end() || 2 * largest->second.size() <= ranks_.size()) return std::nullopt;
    RankGroup odd;
    for (const auto& [key, group] : groups) {
      if (key != largest->first) odd.insert(odd.end(), group.begin(), group.end());
    }
    std::sort(odd.begin(), odd.end());
    return odd.empty() ? std::nullopt : std::optional(std::pair(std::move(odd), largest->second));
  }

  void add_by_wait() {
    std::map<std::string, RankGroup> groups;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].sight.is_still || ranks_[i].sight.waits.empty()) return;
      groups[ranks_[i].sight.waits].push_back(i);
    }
    const auto found = minority(groups);
    if (!found) return;
    const auto& [odd, others] = *found;
    const auto in = [this](const RankGroup& group) { return printable(ranks_[group.front()].sight.waits); };
    differ(odd, cat({odd.size() == 1 ? "waits in " : "wait in ", in(odd), ", ", rest_short(odd), " in ", in(others)}));
  }

  void add_by_stack() {
    std::map<std::vector<std::string>, RankGroup> groups;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].sight.stack.empty()) return;
      groups[ranks_[i].sight.stack].push_back(i);
    }
    const auto found = minority(groups);
    if (!found) return;
    const auto& [odd, others] = *found;
    const auto in = [this](const RankGroup& group) {
      return printable(describe_stack(ranks_[group.front()].sight.stack));
    };
    differ(odd, cat({"in ", in(odd), "; ", rest_short(odd), " in ", in(others)}));
  }

  void add_nothing() {
    const auto count = std::to_string(ranks_.size());
    const bool is_alike = group_ranks(ranks_).size() == 1;
    found_.push_back(
        {is_alike ? "alike" : "none",
         {},
         is_alike ? cat({"all ", count, " ranks run alike"}) : cat({"none of the ", count, " ranks stands out"})});
  }

  const std::vector<SeenRank>& ranks_;
  const std::optional<MeetingPoint>& meeting_;
  std::vector<Finding> found_;
};

// Ranks of one node with the same value, which is not empty, as sentences.
void add_shared(const std::vector<SeenRank>& ranks, const std::function<std::string(const RankSight&)>& value_of,
                std::string_view what, std::vector<std::string>& notes) {
  std::map<std::pair<std::string, std::string>, RankGroup> groups;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (auto value = value_of(ranks[i].sight); !value.empty()) {
      groups[{ranks[i].sight.node, std::move(value)}].push_back(i);
    }
  }
  for (const auto& [key, group] : groups) {
    if (group.size() > 1) {
      notes.push_back(
          cat({"ranks ", list_ranks(ranks, group), " of ", printable(key.first), what, printable(key.second)}));
    }
  }
}

void add_different_nccl(const std::vector<SeenRank>& ranks, std::vector<std::string>& notes) {
  std::map<std::string, std::map<std::string, RankGroup>> by_node;
  std::map<std::string, RankGroup> by_build;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& sight = ranks[i].sight;
    if (!sight.nccl_file.empty()) by_node[sight.node][sight.nccl_file].push_back(i);
    if (!sight.nccl_build.empty()) by_build[sight.nccl_build].push_back(i);
  }
  for (const auto& [node, files] : by_node) {
    if (files.size() > 1) {
      notes.push_back(cat({"ranks of ", printable(node), " have loaded ", std::to_string(files.size()),
                           " different files of libnccl: ranks ", list_ranks(ranks, files.begin()->second),
                           " one, the others another"}));
    }
  }
  if (by_build.size() < 2) return;
  const auto least = std::min_element(by_build.begin(), by_build.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  notes.push_back(cat({"ranks have loaded ", std::to_string(by_build.size()), " different builds of libnccl; ",
                       name_group(ranks, least->second), least->second.size() == 1 ? " has" : " have", " build ",
                       printable(least->first)}));
}

}  // namespace

std::vector<Finding> find_out_of_step(const std::vector<SeenRank>& ranks, const std::optional<MeetingPoint>& meeting,
                                      const std::vector<std::string>& silent_nodes) {
  return Finder(ranks, meeting).run(silent_nodes);
}

std::vector<std::string> notes_on(const std::vector<SeenRank>& ranks) {
  std::vector<std::string> notes;
  // A process that uses several GPUs may open them all at its start.
  add_shared(
      ranks, [](const RankSight& sight) { return sight.gpu_ids.size() == 1 ? sight.gpu_ids.front() : ""; },
      " use one GPU, ", notes);
  add_shared(
      ranks,
      [](const RankSight& sight) { return sight.cores.find_first_of(",-") == std::string::npos ? sight.cores : ""; },
      " may run on one core only, core ", notes);
  add_different_nccl(ranks, notes);
  std::string last;
  for (const auto& rank : ranks) {
    if (rank.sight.stack_trouble.empty() || rank.sight.stack_trouble == last) continue;
    last = rank.sight.stack_trouble;
    notes.push_back(last);
    if (notes.size() > 8) break;
  }
  return notes;
}

}  // namespace bootstrap
