// What the looking step sees of one rank and of one node, and the lines of JSON in which it reports that.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/sight.h"

#include <utility>

#include "core/util/text.h"
#include "tools/status/flat_json.h"

namespace bootstrap {
namespace {

template <class Sight, class Visit>
void visit_rank(Sight& sight, Visit visit) {
  visit("rank", sight.rank);
  visit("local_rank", sight.local_rank);
  visit("task", sight.task);
  visit("world_size", sight.world_size);
  visit("node", sight.node);
  visit("pid", sight.pid);
  visit("program", sight.program);
  visit("chain", sight.chain);
  visit("unread", sight.unread);
  visit("is_launcher", sight.is_launcher);
  visit("state", sight.state);
  visit("is_still", sight.is_still);
  visit("waits_in", sight.waits);
  visit("wchan", sight.wchan);
  visit("child", sight.child);
  visit("cpu_percent", sight.cpu);
  visit("memory_kib", sight.memory);
  visit("written_kib", sight.written);
  visit("cores", sight.cores);
  visit("framework", sight.framework);
  visit("meetings", sight.meetings);
  visit("listens", sight.listens);
  visit("task_listens", sight.task_listens);
  visit("links", sight.links);
  visit("tries", sight.tries);
  visit("nccl_file", sight.nccl_file);
  visit("nccl_build", sight.nccl_build);
  visit("nccl_version", sight.nccl_version);
  visit("ras_port", sight.ras_port);
  visit("gpus", sight.gpus);
  visit("gpu_ids", sight.gpu_ids);
  visit("stack", sight.stack);
  visit("stack_trouble", sight.stack_trouble);
}

template <class Sight, class Visit>
void visit_node(Sight& sight, Visit visit) {
  visit("looked_at", sight.node);
  visit("tasks", sight.tasks);
  visit("ras", sight.ras);
  visit("gpus", sight.gpus);
}

std::string to_json(bool value) { return value ? "true" : "false"; }
std::string to_json(std::uint64_t value) { return std::to_string(value); }
std::string to_json(const std::string& value) { return json_string(value); }

template <class Item>
std::string to_json(const std::vector<Item>& items) {
  std::string out = "[";
  for (const auto& item : items) out += cat({out.size() > 1 ? ", " : "", to_json(item)});
  return out + "]";
}

struct Writer {
  std::string& out;
  template <class Value>
  void operator()(const char* name, const Value& value) const {
    if (!out.empty()) out += ", ";
    out += json_member(name, to_json(value));
  }
};

// A member that is missing, or of another type, makes the whole line unreadable.
struct MemberReader {
  JsonObject& object;
  bool& is_whole;
  template <class Value>
  void operator()(const char* name, Value& value) const {
    const auto found = object.find(name);
    auto* const held = found == object.end() ? nullptr : std::get_if<Value>(&found->second);
    if (held != nullptr) {
      value = std::move(*held);
      return;
    }
    // An empty list has no type of its own.
    const auto* const numbers =
        found == object.end() ? nullptr : std::get_if<std::vector<std::uint64_t>>(&found->second);
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      if (numbers != nullptr && numbers->empty()) return;
    }
    is_whole = false;
  }
  void operator()(const char* name, bool& value) const {
    std::uint64_t number = 0;
    (*this)(name, number);
    value = number != 0;
  }
};

}  // namespace

std::string rank_members(const RankSight& sight) {
  std::string out;
  visit_rank(sight, Writer{out});
  return out;
}

std::string write_sight(const RankSight& sight) { return cat({"{", rank_members(sight), "}"}); }

std::string write_sight(const NodeSight& sight) {
  std::string out;
  visit_node(sight, Writer{out});
  return cat({"{", out, "}"});
}

std::optional<RankSight> read_rank_sight(std::string_view line) {
  auto object = read_flat_json(line);
  RankSight sight;
  bool is_whole = object.has_value();
  if (is_whole) visit_rank(sight, MemberReader{*object, is_whole});
  if (!is_whole || sight.rank >= kMaxRanks || sight.task >= kMaxRanks || sight.world_size > kMaxRanks) {
    return std::nullopt;
  }
  return sight;
}

std::optional<NodeSight> read_node_sight(std::string_view line) {
  auto object = read_flat_json(line);
  NodeSight sight;
  bool is_whole = object.has_value();
  if (is_whole) visit_node(sight, MemberReader{*object, is_whole});
  return is_whole ? std::optional(std::move(sight)) : std::nullopt;
}

std::string frame_line(std::string_view node, std::uint64_t number, std::string_view line) {
  constexpr std::size_t kPiece = 800;
  std::string out;
  do {
    const auto piece = line.substr(0, kPiece);
    line.remove_prefix(piece.size());
    out += cat({"status ", node, " ", std::to_string(number), line.empty() ? " . " : " + ", piece, "\n"});
  } while (!line.empty());
  return out;
}

std::optional<std::string> FrameJoiner::add(std::string_view piece) {
  const auto words = split(piece.substr(0, 512), ' ');
  if (!is_piece(piece) || words.size() < 5 || (words[3] != "+" && words[3] != ".")) return std::nullopt;
  const auto key = cat({words[1], " ", words[2]});
  const auto text = piece.substr(static_cast<std::size_t>(words[3].data() - piece.data()) + 2);
  if (open_.size() == kMaxOpenLines && !open_.contains(key)) return std::nullopt;
  auto& line = open_[key];
  if (line.size() + text.size() <= kMaxJsonLine) line += text;
  if (words[3] == "+") return std::nullopt;
  auto whole = std::move(line);
  open_.erase(key);
  return whole;
}

}  // namespace bootstrap
