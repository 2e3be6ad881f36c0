// What `status` sees of each rank and node of a step, and the lines in which the looking step reports it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/rank_state.h"

#include <array>
#include <type_traits>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxValue = 800;   // bytes in a line
constexpr std::size_t kMaxItems = 1024;  // of a list
constexpr std::size_t kMaxOpen = 65536;  // records without their end

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kPhases{{
    {"ended", "ended"},
    {"launcher_only", "shell or launcher"},
    {"no_framework", "no framework yet"},
    {"before_rendezvous", "before rendezvous"},
    {"connected", "connected"},
    {"communicating_or_computing", "running"},
    {"disk_wait", "disk wait"},
    {"stopped", "stopped"},
    {"zombie", "zombie"},
    {"unknown", "unknown"},
}};

template <class Rank, class Visit>
void visit_rank(Rank& rank, Visit visit) {
  visit("rank", rank.rank);
  visit("local_rank", rank.local_rank);
  visit("task", rank.task);
  visit("world_size", rank.world_size);
  visit("node", rank.node);
  visit("node_tasks", rank.node_tasks);
  visit("pid", rank.pid);
  visit("program", rank.program);
  visit("chain", rank.chain);
  visit("unread", rank.unread);
  visit("is_launcher", rank.is_launcher);
  visit("state", rank.state);
  visit("is_still", rank.is_still);
  visit("waits_in", rank.waits);
  visit("wchan", rank.wchan);
  visit("child", rank.child);
  visit("cpu_percent", rank.cpu);
  visit("cpu_wait_percent", rank.cpu_wait);
  visit("memory_kib", rank.memory);
  visit("written_kib", rank.written);
  visit("cores", rank.cores);
  visit("framework", rank.framework);
  visit("meetings", rank.meetings);
  visit("listens", rank.listens);
  visit("task_listens", rank.task_listens);
  visit("links", rank.links);
  visit("tries", rank.tries);
  visit("nccl_file", rank.nccl_file);
  visit("nccl_build", rank.nccl_build);
  visit("nccl_version", rank.nccl_version);
  visit("ras_port", rank.ras_port);
  visit("gpus", rank.gpus);
  visit("gpu_ids", rank.gpu_ids);
  visit("stack", rank.stack);
  visit("stack_trouble", rank.stack_trouble);
}

template <class Node, class Visit>
void visit_node(Node& node, Visit visit) {
  visit("node", node.node);
  visit("ras", node.ras);
  visit("gpus", node.gpus);
}

// What is 0, false or empty has no line.
struct LineWriter {
  std::string& out;
  std::string start;
  void operator()(std::string_view name, const std::string& value) const {
    if (!value.empty()) out += cat({start, name, " ", printable(value).substr(0, kMaxValue), "\n"});
  }
  void operator()(std::string_view name, std::uint64_t value) const {
    if (value != 0) out += cat({start, name, " ", std::to_string(value), "\n"});
  }
  template <class Item>
  void operator()(std::string_view name, const std::vector<Item>& items) const {
    for (const auto& item : items) (*this)(name, item);
  }
};

struct LineReader {
  std::string_view wanted;
  std::string_view text;
  template <class Value>
  void operator()(std::string_view name, Value& value) const {
    if (name == wanted) read(value);
  }
  void read(std::string& value) const { value = printable(text); }
  void read(std::uint64_t& value) const { value = parse_unsigned(text).value_or(0); }
  void read(bool& value) const { value = text == "1"; }
  template <class Item>
  void read(std::vector<Item>& items) const {
    if (items.size() < kMaxItems) read(items.emplace_back());
  }
};

std::string json_of(bool value) { return value ? "true" : "false"; }
std::string json_of(std::uint64_t value) { return std::to_string(value); }
std::string json_of(const std::string& value) { return json_string(value); }
template <class Item>
std::string json_of(const std::vector<Item>& items) {
  std::string out = "[";
  for (const auto& item : items) out += cat({out.size() > 1 ? ", " : "", json_of(item)});
  return out + "]";
}

// Moves the record out of `open` when its last line has come.
template <class Record>
bool take_line(std::map<std::string, Record, std::less<>>& open, std::string key, const LineReader& line,
               Record& whole) {
  const auto found = open.size() < kMaxOpen ? open.try_emplace(std::move(key)).first : open.find(key);
  if (found == open.end()) return false;
  if (line.wanted != "end") {
    if constexpr (std::is_same_v<Record, RankState>) visit_rank(found->second, line);
    if constexpr (std::is_same_v<Record, NodeState>) visit_node(found->second, line);
    return false;
  }
  whole = std::move(found->second);
  open.erase(found);
  return true;
}

}  // namespace

std::string_view phase_name(Phase phase) { return kPhases[static_cast<std::size_t>(phase)].first; }
std::string_view phase_text(Phase phase) { return kPhases[static_cast<std::size_t>(phase)].second; }

std::string rank_lines(const RankState& rank) {
  std::string out;
  const LineWriter writer{out, cat({"status rank ", rank.node, " ", std::to_string(rank.pid), " "})};
  visit_rank(rank, writer);
  return cat({out, writer.start, "end\n"});
}

std::string node_lines(const NodeState& node, std::uint64_t number) {
  std::string out;
  const LineWriter writer{out, cat({"status node ", node.node, " ", std::to_string(number), " "})};
  visit_node(node, writer);
  return cat({out, writer.start, "end\n"});
}

bool StateReader::add(std::string_view line, StepState& step) {
  const auto words = split(line.substr(0, kMaxValue), ' ');
  if (words.size() < 5 || words[0] != "status" || (words[1] != "rank" && words[1] != "node")) return false;
  const auto value = words.size() > 5 ? line.substr(static_cast<std::size_t>(words[5].data() - line.data())) : "";
  const LineReader reader{words[4], value.substr(0, kMaxValue)};
  const auto key = cat({words[2], " ", words[3]});
  RankState rank;
  NodeState node;
  if (words[1] == "node" && take_line(nodes_, key, reader, node)) step.nodes.push_back(std::move(node));
  if (words[1] == "rank" && take_line(ranks_, key, reader, rank) && rank.rank < kMaxRanks && rank.task < kMaxRanks &&
      rank.world_size <= kMaxRanks) {
    step.ranks.push_back(std::move(rank));
  }
  return true;
}

std::string rank_json(const RankState& rank) {
  auto out = json_member("phase", json_string(phase_name(rank.phase)));
  visit_rank(rank, [&](const char* name, const auto& value) { out += cat({", ", json_member(name, json_of(value))}); });
  return cat({"{", out, "}"});
}

}  // namespace bootstrap
