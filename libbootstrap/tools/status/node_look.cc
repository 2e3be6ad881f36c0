// The looking step's process on one node: looks at each task of a step, and prints its ranks.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/node_look.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>

#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "tools/check/check_socket.h"
#include "tools/check/child_output.h"
#include "tools/status/parse_proc.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMark = "look-at-node";
constexpr int kWords = 8;
constexpr std::size_t kMaxTasks = 1024;  // of a node
constexpr unsigned kLifetime = 9;        // seconds, also where the command does not end the step
constexpr std::chrono::seconds kListLimit(2);
constexpr std::chrono::milliseconds kLookLimit(4500);
constexpr std::string_view kSecondLook = "\f\n";  // between what a child writes at once and after a second

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// From Slurm's own record of the step. If that is empty, from the environments of the processes, since a rank that is
// not found counts as ended.
std::vector<RankState> find_tasks(const NodeLook& look, const std::string& node) {
  ChildOutput list({look.scontrol, "listpids", cat({look.job, ".", look.step})}, {.most = std::size_t{1} << 20});
  auto tasks = parse_task_list(list.read(Deadline::clock::now() + kListLimit), look, node);
  if (!tasks.empty()) return tasks;
  const auto write_list = [&](int output) {
    for (const auto& task : find_tasks_by_environment(look.job, look.step, node)) {
      write_all(output, cat({std::to_string(task.pid), " ", look.job, " ", look.step, " ",
                             std::to_string(task.local_rank), " ", std::to_string(task.rank - look.first_rank), "\n"}));
    }
  };
  ChildOutput search(write_list, kLifetime);
  return parse_task_list(search.read(Deadline::clock::now() + kListLimit), look, node);
}

// What is known at once is for the case that the rest waits in the kernel.
void write_task(const RankState& task, const NodeLook& look, int output) {
  auto first = look_at_main_process(task);
  first.unread = cat({"its /proc did not answer within ", std::to_string(kLookLimit.count()), " ms"});
  write_all(output, cat({rank_lines(first), kSecondLook}));
  const auto stack_of = [&look](RankState& rank) {
    if (!look.py_spy.empty()) add_stack(rank, look.py_spy);
  };
  for (const auto& rank : look_at_task(task, stack_of)) write_all(output, rank_lines(rank));
}

// The lines of a task that its child has written.
std::string lines_of(const ChildOutput& child, RankState task) {
  const auto end = child.text().find(kSecondLook);
  if (child.has_ended() && end != std::string::npos) return child.text().substr(end + kSecondLook.size());
  if (end != std::string::npos) return child.text().substr(0, end);
  task.unread = cat({"its /proc did not answer within ", std::to_string(kLookLimit.count()), " ms"});
  return rank_lines(task);
}

void look_at_node(const NodeLook& look, const std::string& node) {
  const auto tasks = find_tasks(look, node);
  std::deque<ChildOutput> children;
  for (const auto& task : tasks) {
    children.emplace_back([&](int output) { write_task(task, look, output); }, kLifetime);
  }
  for (const auto* const query : {"--query-gpu=uuid,index,utilization.gpu", "--query-compute-apps=pid,gpu_uuid"}) {
    children.emplace_back(std::vector<std::string>{"nvidia-smi", query, "--format=csv,noheader,nounits"});
  }
  (void)read_all(children, Deadline::clock::now() + kLookLimit);
  NodeState state;
  state.node = node;
  StepState step;
  StateReader reader;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto lines = lines_of(children[i], tasks[i]);
    write_all(STDOUT_FILENO, lines);
    for (const auto line : split(lines, '\n')) (void)reader.add(line, step);
  }
  state.gpus = parse_gpu_use(children[tasks.size()].text(), children.back().text());
  const char* const place = std::getenv("SLURM_NODEID");
  if (look.asks_ras && place != nullptr && std::string_view(place) == "0") state.ras = ask_ras(step.ranks, node);
  write_all(STDOUT_FILENO, node_lines(state, static_cast<std::uint64_t>(::getpid())));
  children.clear();
}

}  // namespace

std::vector<std::string> node_look_words(const NodeLook& look) {
  return {std::string(kMark),
          look.job,
          look.step,
          std::to_string(look.first_rank),
          look.asks_ras ? "ras" : "-",
          cat({"=", look.scontrol}),
          cat({"=", look.py_spy})};
}

bool is_node_look(int count, const char* const* words) { return count == kWords && words[1] == kMark; }

void serve_as_node_look(int count, const char* const* words) {
  const std::vector<std::string> arguments(words, words + count);
  (void)::alarm(kLifetime);
  const char* const name = std::getenv("SLURMD_NODENAME");
  if (name == nullptr) ::_exit(2);
  look_at_node({.job = arguments[2],
                .step = arguments[3],
                .first_rank = parse_unsigned(arguments[4], kMaxRanks).value_or(0),
                .asks_ras = arguments[5] == "ras",
                .scontrol = arguments[6].substr(1),
                .py_spy = arguments[7].substr(1)},
               name);
  ::_exit(0);
}

std::vector<RankState> parse_task_list(std::string_view text, const NodeLook& look, const std::string& node) {
  std::vector<RankState> tasks;
  for (const auto line : split(text, '\n')) {
    const auto words = words_of(line);
    if (words.size() != 5 || words[1] != look.job || words[2] != look.step || tasks.size() == kMaxTasks) continue;
    const auto pid = parse_unsigned(words[0]);
    const auto local_rank = parse_unsigned(words[3], kMaxRanks - 1);
    const auto rank = parse_unsigned(words[4], kMaxRanks - 1);
    if (pid && local_rank && rank) tasks.push_back(task_at(node, *pid, *rank + look.first_rank, *local_rank));
  }
  return tasks;
}

}  // namespace bootstrap
