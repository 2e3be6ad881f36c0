// The ranks that are out of step, in sentences that claim no more than was seen.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/judgement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/util/text.h"
#include "tools/status/node_look.h"

namespace bootstrap {
namespace {

constexpr const char* kMaybe = "; it may be slow, in a checkpoint, or stuck";
constexpr std::uint64_t kMuchWritten = 10240;  // KiB in a second
constexpr std::uint64_t kIdle = 20;            // percent of a core

// A sentence about one rank, without its name, as one about several.
std::string plural(std::string_view sentence) {
  const auto verb = sentence.substr(0, sentence.find_first_of(" :"));
  const auto rest = sentence.substr(verb.size());
  auto text = cat({verb == "is" ? "are" : verb == "has" ? "have" : verb.substr(0, verb.size() - 1), rest});
  for (const auto& [one, several] : {std::pair{"; it ", "; they "},
                                     {" its parent has", " their parents have"},
                                     {"(zombie)", "(zombies)"},
                                     {": waits ", ": wait "}}) {
    text = replaced(text, one, several);
  }
  return text;
}

class Finder {
 public:
  Finder(const Ranks& ranks, const std::optional<MeetingPoint>& meeting) : ranks_(ranks), meeting_(meeting) {}

  std::vector<Finding> run(const std::vector<std::string>& silent_nodes) {
    if (!silent_nodes.empty()) add_silent(silent_nodes);
    const auto in_state = [](const char* state, const char* sentence) -> Text {
      return [=](const RankState& rank) { return rank.state == state ? sentence : ""; };
    };
    add_each("stopped", in_state("T", "is stopped (SIGSTOP)"));
    add_each("traced", in_state("t", "is stopped by a debugger"));
    add_each("disk_wait", [](const RankState& rank) {
      const auto what = rank.state == "D" ? "disk or file system (D state)" : rank.waits;
      return rank.phase == Phase::kDiskWait ? cat({"waits for a ", what}) : "";
    });
    add_each("zombie", in_state("Z", "has ended, and its parent has not noticed (zombie)"));
    add_ended();
    add_each("child", [](const RankState& rank) {
      return rank.child.empty() ? "" : cat({"has a child process that is held up: ", rank.child});
    });
    add_launchers();
    add_no_framework();
    if (meeting_) add_unconnected();
    const auto input =
        choose([](const RankState& rank) { return rank.is_still && rank.waits == "read of standard input"; });
    if (input.size() < ranks_.size()) add("input", input, "waits for input (read of standard input)");
    add_each("unknown", [](const RankState& rank) {
      const bool is_unread = rank.phase == Phase::kUnknown && !rank.unread.empty();
      return is_unread ? cat({"is unknown: ", rank.unread}) : "";
    });
    if (found_.empty()) add_differences();
    if (found_.empty()) add_nothing();
    return std::move(found_);
  }

 private:
  using Text = std::function<std::string(const RankState&)>;
  using Groups = std::map<std::string, RankGroup>;

  RankGroup choose(const std::function<bool(const RankState&)>& is_meant) const {
    RankGroup group;
    for (const auto& rank : ranks_) {
      if (is_meant(rank)) group.push_back(&rank);
    }
    return group;
  }

  RankGroup in_phase(Phase phase) const {
    return choose([phase](const RankState& rank) { return rank.phase == phase; });
  }

  // Ranks with the same text; ranks without one are left out.
  Groups group_by(const Text& text_of) const {
    Groups groups;
    for (const auto& rank : ranks_) {
      if (auto text = text_of(rank); !text.empty()) groups[std::move(text)].push_back(&rank);
    }
    return groups;
  }

  void add(std::string kind, const RankGroup& group, std::string_view sentence) {
    if (group.empty()) return;
    found_.push_back({std::move(kind), numbers_of(group),
                      cat({name_group(ranks_, group), " ", group.size() == 1 ? sentence : plural(sentence)})});
  }

  void add_each(const char* kind, const Text& sentence_of) {
    for (const auto& [sentence, group] : group_by(sentence_of)) add(kind, group, sentence);
  }

  void add_silent(std::vector<std::string> nodes) {
    constexpr std::size_t kMaxNames = 4;
    const auto more = nodes.size() - std::min(nodes.size(), kMaxNames);
    nodes.resize(nodes.size() - more);
    auto text = join(nodes, ", ");
    if (more > 0) text += cat({" and ", std::to_string(more), " more nodes"});
    const auto group = choose([](const RankState& rank) { return rank.phase == Phase::kUnknown && rank.pid == 0; });
    if (!group.empty()) text += cat({" (rank", group.size() == 1 ? " " : "s ", list_ranks(group), ")"});
    found_.push_back({"no_answer", numbers_of(group), cat({text, " did not answer"})});
  }

  void add_ended() {
    const auto ended = in_phase(Phase::kEnded);
    const auto left = ranks_.size() - ended.size();
    add("ended", ended, cat({"has ended; ", counted(left, "rank"), left == 1 ? " is there" : " are there"}));
  }

  void add_launchers() {
    const auto launchers = in_phase(Phase::kLauncher);
    if (launchers.empty() || launchers.size() == ranks_.size()) return;
    add("launcher_only", launchers, cat({"runs only ", launchers.front()->chain, "; no program runs below"}));
  }

  void add_no_framework() {
    const auto before = in_phase(Phase::kNoFramework);
    const auto loaded = choose([](const RankState& rank) { return !rank.framework.empty(); });
    if (before.empty() || loaded.empty()) return;
    const auto& rank = *before.front();
    const auto comma = rank.chain.rfind(", ");
    const auto below = comma == std::string::npos ? "" : cat({" (below ", rank.chain.substr(0, comma), ")"});
    const bool waits = before.size() == 1 && !rank.waits.empty() && rank.waits != rank.program;
    const auto count = ranks_.size() - before.size();
    const auto rest = count == 1 ? "the other rank has" : cat({"the other ", std::to_string(count), " ranks have"});
    add("no_framework", before,
        cat({"runs ", rank.program, below, " without ", loaded.front()->framework, ", which ", rest, " loaded",
             waits ? cat({"; it waits in ", rank.waits}) : ""}));
  }

  void add_unconnected() {
    const auto group = in_phase(Phase::kBefore);
    const auto count =
        static_cast<std::size_t>(std::count(meeting_->connected.begin(), meeting_->connected.end(), true));
    const auto who =
        count + group.size() == ranks_.size() ? cat({"the other ", std::to_string(count)}) : counted(count, "rank");
    const auto others =
        meeting_->is_listened ? "a rank listens" : cat({who, count == 1 ? " is" : " are", " connected"});
    add("not_connected", group,
        cat({"has no connection to ", meeting_->name, " of ", meeting_->node, ", where ", others,
             group.size() == 1 ? other_port(*group.front()) : ""}));
  }

  // A rank that was started with another MASTER_PORT, or tries another port now.
  std::string other_port(const RankState& rank) const {
    for (const auto& name : rank.meetings) {
      const auto variable = name.substr(0, name.find(' ') + 1);
      if (meeting_->name.starts_with(variable) && meeting_->name != name) return cat({"; it was started with ", name});
    }
    const auto tried = std::find_if(rank.tries.begin(), rank.tries.end(),
                                    [this](std::uint64_t port) { return port != meeting_->port; });
    return tried == rank.tries.end() ? "" : cat({"; it tries port ", std::to_string(*tried)});
  }

  void add_differences() {
    const auto frames = [](const RankState& rank) { return join(rank.stack, "\n"); };
    const auto code = [](const RankState& rank) { return cat({"in ", describe_stack(rank.stack)}); };
    if (add_minority(frames, code, "; ")) return;
    const auto cpu = cpu_of(ranks_);
    const auto apart = far_apart(cpu);
    if (!apart.empty()) return add_by_cpu(apart);
    const auto waits = [](const RankState& rank) { return rank.is_still ? rank.waits : ""; };
    const auto place = [](const RankState& rank) { return cat({"in ", rank.waits}); };
    const bool is_idle = std::all_of(cpu.begin(), cpu.end(), [](std::uint64_t percent) { return percent <= kIdle; });
    if (is_idle) (void)add_minority(waits, place, ", ");
  }

  void differ(const RankGroup& group, std::string_view what, std::string_view separator, std::string_view of_others) {
    const auto* const others = ranks_.size() - group.size() == 1 ? "the other " : "the others ";
    add("differs", group, cat({"differs: ", what, separator, others, of_others, kMaybe}));
  }

  // Ranks outside the largest group, where that has more than half of all ranks and each rank is in a group.
  bool add_minority(const Text& key_of, const Text& describe, std::string_view separator) {
    const auto groups = group_by(key_of);
    const auto largest = std::max_element(groups.begin(), groups.end(), [](const auto& one, const auto& other) {
      return one.second.size() < other.second.size();
    });
    if (largest == groups.end() || 2 * largest->second.size() <= ranks_.size()) return false;
    const auto odd = choose([&](const RankState& rank) { return key_of(rank) != largest->first; });
    if (odd.empty() || std::any_of(odd.begin(), odd.end(), [&](auto* rank) { return key_of(*rank).empty(); }))
      return false;
    const auto* const verb = separator == ", " ? "waits " : "";
    differ(odd, cat({verb, describe(*odd.front())}), separator, describe(*largest->second.front()));
    return true;
  }

  void add_by_cpu(const std::vector<bool>& apart) {
    RankGroup group;
    RankGroup others;
    for (std::size_t i = 0; i < ranks_.size(); ++i) (apart[i] ? group : others).push_back(&ranks_[i]);
    const auto& rank = *group.front();
    auto what = cat({cpu_range(group), " CPU"});
    if (group.size() == 1 && rank.cpu_wait > rank.cpu) what += ", waits for a core";
    if (group.size() == 1 && rank.is_still && !rank.waits.empty()) what += cat({", waits in ", rank.waits});
    if (group.size() == 1 && rank.written >= kMuchWritten) {
      what += cat({", wrote ", std::to_string(rank.written >> 10), " MiB in a second"});
    }
    differ(group, what, "; ", cpu_range(others));
  }

  void add_nothing() {
    const auto count = std::to_string(ranks_.size());
    if (group_ranks(ranks_).size() == 1)
      return found_.push_back({"alike", {}, cat({"all ", count, " ranks run alike"})});
    found_.push_back({"none", {}, cat({"none of the ", count, " ranks stands out"})});
  }

  const Ranks& ranks_;
  const std::optional<MeetingPoint>& meeting_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> find_out_of_step(const Ranks& ranks, const std::optional<MeetingPoint>& meeting,
                                      const std::vector<std::string>& silent_nodes) {
  return Finder(ranks, meeting).run(silent_nodes);
}

std::vector<std::string> notes_on(const Ranks& ranks) {
  using ByNodeAndValue = std::map<std::string, std::map<std::string, RankGroup>>;
  ByNodeAndValue gpus;
  ByNodeAndValue cores;
  ByNodeAndValue files;
  std::map<std::string, RankGroup> builds;
  for (const auto& rank : ranks) {
    // A process that uses several GPUs may open them all at its start.
    if (rank.gpu_ids.size() == 1) gpus[rank.node][rank.gpu_ids.front()].push_back(&rank);
    const bool has_one_core = !rank.cores.empty() && rank.cores.find_first_of(",-") == std::string::npos;
    if (has_one_core) cores[rank.node][rank.cores].push_back(&rank);
    if (!rank.nccl_file.empty()) files[rank.node][rank.nccl_file].push_back(&rank);
    if (!rank.nccl_build.empty()) builds[rank.nccl_build].push_back(&rank);
  }
  std::vector<std::string> notes;
  for (const auto& [what, nodes] : {std::pair{" use one GPU, ", &gpus}, {" may run on one core only, core ", &cores}}) {
    for (const auto& [node, values] : *nodes) {
      for (const auto& [value, group] : values) {
        if (group.size() > 1) notes.push_back(cat({"ranks ", list_ranks(group), " of ", node, what, value}));
      }
    }
  }
  for (const auto& [node, values] : files) {
    if (values.size() < 2) continue;
    notes.push_back(
        cat({"ranks of ", node, " have loaded ", std::to_string(values.size()), " different files of libnccl: ranks ",
             list_ranks(values.begin()->second), " one, the others another"}));
  }
  if (builds.size() > 1) {
    const auto& [build, group] =
        *std::min_element(builds.begin(), builds.end(),
                          [](const auto& one, const auto& other) { return one.second.size() < other.second.size(); });
    notes.push_back(cat({"ranks have loaded ", std::to_string(builds.size()), " different builds of libnccl; ",
                         name_group(ranks, group), group.size() == 1 ? " has" : " have", " build ", build}));
  }
  std::string last;
  for (const auto& rank : ranks) {
    if (rank.stack_trouble.empty() || rank.stack_trouble == last || notes.size() > 8) continue;
    notes.push_back(last = rank.stack_trouble);
  }
  return notes;
}

}  // namespace bootstrap
