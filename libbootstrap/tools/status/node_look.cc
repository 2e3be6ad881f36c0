// The looking step's process on one node: looks at each task of a step, and prints a line of JSON for each rank.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/node_look.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "core/util/text.h"
#include "probe/files.h"
#include "tools/check/check_socket.h"
#include "tools/check/child_output.h"
#include "tools/status/flat_json.h"
#include "tools/status/gpu_use.h"
#include "tools/status/nccl_ras.h"
#include "tools/status/python_stack.h"

namespace bootstrap {
namespace {

constexpr const char* kMark = "look-at-node";
constexpr std::size_t kWords = 8;
constexpr std::size_t kMaxTasks = 1024;  // of a node
constexpr unsigned kLifetime = 9;        // seconds, also where nobody ends the step
constexpr std::chrono::seconds kListLimit(2);
constexpr std::chrono::milliseconds kLookLimit(4500);
constexpr std::size_t kMaxChildText = std::size_t{1} << 20;

// First character of each line from a child.
constexpr char kFirstSight = '?';
constexpr char kSight = '!';
constexpr char kRanksOfNode = '#';
constexpr char kGpu = 'g';
constexpr char kTask = 't';  // stands in no number

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

void write_line(int descriptor, char kind, std::string_view text) {
  write_all(descriptor, cat({std::string_view(&kind, 1), text, "\n"}));
}

// A process that may wait in the kernel, and that this one can leave.
struct LeavableChild {
  pid_t process = -1;
  Descriptor output;
  std::string text;
  bool has_ended = false;
};

LeavableChild start_child(const std::function<void(int)>& work) {
  LeavableChild child;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return child;
  child.output = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  child.process = ::fork();
  if (child.process == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)::alarm(kLifetime);
    work(of_child.get());
    ::_exit(0);
  }
  return child;
}

void read_from(LeavableChild& child) {
  std::array<char, 16384> part;
  const auto count = ::read(child.output.get(), part.data(), part.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0 && child.text.size() < kMaxChildText) {
    child.text.append(part.data(), static_cast<std::size_t>(count));
    return;
  }
  child.has_ended = count == 0;
  child.output.reset();
}

// Reads from all until each has ended or the deadline has passed; `ended` is called once for each.
void gather(std::vector<LeavableChild>& children, Deadline deadline, const std::function<void(std::size_t)>& ended) {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!children[i].output.is_open()) continue;
      waits.push_back({.fd = children[i].output.get(), .events = POLLIN, .revents = 0});
      places.push_back(i);
    }
    const int ready = waits.empty() ? 0 : ::poll(waits.data(), waits.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    for (std::size_t k = 0; k < waits.size(); ++k) {
      if (waits[k].revents == 0) continue;
      read_from(children[places[k]]);
      if (!children[places[k]].output.is_open()) ended(places[k]);
    }
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (children[i].process > 0 && !children[i].has_ended) (void)::kill(children[i].process, SIGKILL);
    if (children[i].output.is_open()) ended(i);
    children[i].output.reset();
    if (children[i].process > 0) (void)::waitpid(children[i].process, nullptr, WNOHANG);
  }
}

std::vector<std::string> lines_of(const LeavableChild& child, char kind) {
  std::vector<std::string> lines;
  for (const auto line : split(child.text, '\n')) {
    if (line.starts_with(kind)) lines.emplace_back(line.substr(1));
  }
  return lines;
}

void look_at_task(const TaskPlace& place, const NodeLook& look, int output) {
  const TaskLook task(place);
  write_line(output, kFirstSight, write_sight(task.first_sight()));
  write_line(output, kRanksOfNode, task.ranks_of_node());
  const auto stack_of = [&look](RankSight& sight) {
    if (!look.py_spy.empty()) add_stack(sight, look.py_spy);
  };
  for (const auto& sight : task.look(stack_of)) write_line(output, kSight, write_sight(sight));
}

// All that this process does on its node.
class NodeSession {
 public:
  NodeSession(NodeLook look, std::string node) : look_(std::move(look)), node_(std::move(node)) { sight_.node = node_; }

  void run() {
    const auto tasks = find_tasks();
    std::vector<LeavableChild> children;
    children.reserve(tasks.size() + 1);
    for (const auto& place : tasks) {
      children.push_back(start_child([&](int output) { look_at_task(place, look_, output); }));
    }
    children.push_back(start_child([](int output) {
      for (const auto& line : read_gpu_use()) write_line(output, kGpu, line);
    }));
    gather(children, Deadline::clock::now() + kLookLimit, [&](std::size_t i) {
      if (i < tasks.size()) report(children[i], tasks[i]);
    });
    sight_.gpus = lines_of(children.back(), kGpu);
    const char* const place = std::getenv("SLURM_NODEID");
    if (look_.asks_ras && place != nullptr && std::string_view(place) == "0") sight_.ras = ask_ras(sights_, node_);
    print(write_sight(sight_));
  }

 private:
  // By Slurm's own record of the step. Where that has none, the environments of the processes are asked, too, since a
  // rank that cannot be found passes for one that has ended.
  std::vector<TaskPlace> find_tasks() {
    if (!look_.scontrol.empty()) {
      ChildOutput program({look_.scontrol, "listpids", cat({look_.job, ".", look_.step})},
                          {.most = std::size_t{1} << 20});
      auto tasks = parse_task_list(program.read(Deadline::clock::now() + kListLimit), look_, node_);
      if (!tasks.empty()) return tasks;
    }
    std::vector<LeavableChild> children;
    children.push_back(start_child([this](int output) {
      for (const auto& place : find_tasks_by_environment(look_.job, look_.step, node_)) {
        write_line(output, kTask,
                   cat({" ", std::to_string(place.pid), " ", look_.job, " ", look_.step, " ",
                        std::to_string(place.local_rank), " ", std::to_string(place.rank - look_.first_rank)}));
      }
    }));
    gather(children, Deadline::clock::now() + kListLimit, [](std::size_t) {});
    return parse_task_list(replaced(children.front().text, std::string_view(&kTask, 1), ""), look_, node_);
  }

  void report(const LeavableChild& child, const TaskPlace& place) {
    const auto ranks = lines_of(child, kRanksOfNode);
    for (const auto word : split(ranks.empty() || !sight_.tasks.empty() ? "" : ranks.front(), ',')) {
      if (const auto rank = parse_unsigned(word, kMaxRanks - 1)) sight_.tasks.push_back(*rank);
    }
    std::vector<RankSight> sights;
    for (const auto& line : lines_of(child, child.has_ended ? kSight : kFirstSight)) {
      if (auto sight = read_rank_sight(line)) sights.push_back(std::move(*sight));
    }
    if (!child.has_ended) {
      sights.resize(1, sight_at(place, place.pid));
      sights.front().unread = cat({"its /proc did not answer within ", std::to_string(kLookLimit.count()), " ms"});
    }
    for (auto& sight : sights) {
      print(write_sight(sight));
      sights_.push_back(std::move(sight));
    }
  }

  void print(const std::string& line) { write_all(STDOUT_FILENO, frame_line(node_, number_++, line)); }

  NodeLook look_;
  std::string node_;
  NodeSight sight_;
  std::vector<RankSight> sights_;
  std::uint64_t number_ = 0;
};

}  // namespace

std::vector<std::string> write_node_look(const NodeLook& look) {
  return {kMark,
          look.job,
          look.step,
          std::to_string(look.first_rank),
          look.asks_ras ? "ras" : "-",
          cat({"=", look.scontrol}),
          cat({"=", look.py_spy})};
}

bool is_node_look(int count, const char* const* words) {
  return count == static_cast<int>(kWords) && std::string_view(words[1]) == kMark;
}

int serve_as_node_look(int count, const char* const* words) {
  const std::vector<std::string> arguments(words, words + count);
  (void)::alarm(kLifetime);
  const char* const name = std::getenv("SLURMD_NODENAME");
  if (name == nullptr) return 2;
  NodeSession({.job = arguments[2],
               .step = arguments[3],
               .first_rank = parse_unsigned(arguments[4], kMaxRanks).value_or(0),
               .asks_ras = arguments[5] == "ras",
               .scontrol = arguments[6].substr(1),
               .py_spy = arguments[7].substr(1)},
              name)
      .run();
  (void)::fflush(nullptr);
  ::_exit(0);
}

std::vector<TaskPlace> parse_task_list(std::string_view text, const NodeLook& look, const std::string& node) {
  std::vector<TaskPlace> tasks;
  for (const auto line : split(text, '\n')) {
    std::vector<std::string_view> words;
    for (const auto word : split(line, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.size() != 5 || words[1] != look.job || words[2] != look.step || tasks.size() == kMaxTasks) continue;
    const auto pid = parse_unsigned(words[0]);
    const auto local_rank = parse_unsigned(words[3], kMaxRanks - 1);
    const auto rank = parse_unsigned(words[4], kMaxRanks - 1);
    if (!pid || !local_rank || !rank) continue;
    tasks.push_back({.node = node, .pid = *pid, .rank = *rank + look.first_rank, .local_rank = *local_rank});
  }
  return tasks;
}

}  // namespace bootstrap
