// Starts the looking step with srun, reads what its processes print, and leaves nothing of it behind.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/look_step.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include "core/step/host_list.h"
#include "core/util/text.h"
#include "tools/check/check_socket.h"
#include "tools/check/child_output.h"
#include "tools/status/node_look.h"

namespace bootstrap {
namespace {

constexpr std::chrono::milliseconds kPatience(700);  // of srun with its own end
constexpr std::chrono::seconds kCancelLimit(1);
constexpr std::size_t kMaxOutput = std::size_t{512} << 20;
constexpr std::size_t kMaxComplaint = 400;

bool is_program(const std::string& path) { return path.starts_with('/') && ::access(path.c_str(), X_OK) == 0; }

std::size_t count_nodes(const std::string& nodes) {
  const auto list = HostList::parse(nodes);
  return list ? list->size() : 0;
}

std::vector<std::string> srun_words(const SlurmCommands& slurm, const ChosenStep& step, const StepPart& part,
                                    const LookOptions& options) {
  const auto nodes = std::to_string(count_nodes(part.nodes));
  std::vector<std::string> words{slurm.srun,
                                 "--quiet",
                                 cat({"--jobid=", step.leader}),
                                 "--overlap",
                                 cat({"--nodes=", nodes}),
                                 cat({"--ntasks=", nodes}),
                                 cat({"--nodelist=", part.nodes}),
                                 "--ntasks-per-node=1",
                                 "--cpus-per-task=1",
                                 "--mem=0",
                                 "--mpi=none",
                                 "--cpu-bind=none",
                                 "--input=none",
                                 "--export=NONE",
                                 "--chdir=/",
                                 "--time=1",
                                 "--kill-on-bad-exit=0",
                                 cat({"--job-name=", kLookName})};
  if (step.is_heterogeneous) words.push_back(cat({"--het-group=", std::to_string(part.component)}));
  // Without it device cgroups hide the GPUs of the job from NVML.
  if (part.gpus > 0) words.push_back(cat({"--gres=gpu:", std::to_string(part.gpus)}));
  words.push_back(own_path());
  const NodeLook look{.job = part.job,
                      .step = step.step,
                      .first_rank = part.first_rank,
                      .asks_ras = options.asks_ras,
                      .scontrol = slurm.scontrol,
                      .py_spy = options.py_spy};
  for (auto& word : write_node_look(look)) words.push_back(std::move(word));
  return words;
}

// One srun, and the lines that have arrived from it.
class Srun {
 public:
  explicit Srun(const std::vector<std::string>& words)
      : child_(words, {.joins_errors = true, .most = kMaxOutput, .environment = environment_for_srun(environ)}) {}

  ChildOutput& child() { return child_; }
  bool is_reading() const { return is_reading_; }

  void read(StepSight& sight) {
    std::array<char, 65536> part;
    const auto count = ::read(child_.descriptor(), part.data(), part.size());
    is_reading_ = count > 0 && (total_ += static_cast<std::size_t>(count)) < kMaxOutput;
    if (count > 0) text_.append(part.data(), static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', begin)) {
      take(std::string_view(text_).substr(begin, end - begin), sight);
      begin = end + 1;
    }
    text_.erase(0, begin);
    if (text_.size() > kMaxLine) text_.clear();
  }

 private:
  static constexpr std::size_t kMaxLine = 65536;

  void take(std::string_view line, StepSight& sight) {
    if (!FrameJoiner::is_piece(line)) {
      // "cluster configuration lacks support for cpu binding" is no reason, and comes in spite of --quiet.
      const bool is_reason = sight.complaint.empty() || line.find("execve") != std::string_view::npos;
      if (is_reason && line.find("cpu binding") == std::string_view::npos) {
        sight.complaint = printable(line.substr(0, kMaxComplaint));
      }
      return;
    }
    const auto whole = joiner_.add(line);
    if (!whole) return;
    if (auto rank = read_rank_sight(*whole)) {
      sight.ranks.push_back(std::move(*rank));
    } else if (auto node = read_node_sight(*whole)) {
      sight.nodes.push_back(std::move(*node));
    }
  }

  ChildOutput child_;
  FrameJoiner joiner_;
  std::string text_;
  std::size_t total_ = 0;
  bool is_reading_ = true;
};

// True when all have ended their output.
bool read_all(std::vector<std::unique_ptr<Srun>>& sruns, StepSight& sight, Deadline deadline) {
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Srun*> readers;
    for (const auto& srun : sruns) {
      if (!srun->is_reading()) continue;
      waits.push_back({.fd = srun->child().descriptor(), .events = POLLIN, .revents = 0});
      readers.push_back(srun.get());
    }
    if (waits.empty()) return true;
    const int ready = ::poll(waits.data(), waits.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0) readers[i]->read(sight);
    }
  }
}

// srun cancels its step when it gets SIGTERM, and then waits for nodes that do not answer. scancel needs no node.
void cancel(const SlurmCommands& slurm, const ChosenStep& step, std::vector<std::unique_ptr<Srun>>& sruns,
            StepSight& sight) {
  for (const auto& srun : sruns) srun->child().send(SIGTERM);
  if (read_all(sruns, sight, Deadline::clock::now() + kPatience)) return;
  std::string jobs;
  for (const auto& part : step.parts) jobs += cat({jobs.empty() ? "" : ",", part.job});
  const auto text = run_command({slurm.squeue, "-h", "-s", "-j", jobs, "-o", kStepFormat}, kCancelLimit);
  for (const auto& line : parse_steps(text ? *text : "")) {
    if (line.name == kLookName) (void)run_command({slurm.scancel, cat({line.job, ".", line.step})}, kCancelLimit);
  }
}

void name_silent_nodes(const ChosenStep& step, StepSight& sight) {
  std::set<std::string> answered;
  for (const auto& node : sight.nodes) answered.insert(node.node);
  for (const auto& part : step.parts) {
    const auto list = HostList::parse(part.nodes);
    if (!list) continue;
    for (auto& node : list->expand()) {
      if (!answered.contains(node)) sight.silent_nodes.push_back(std::move(node));
    }
  }
}

// A process of a rank has an id of this node only.
void add_gpus(StepSight& sight) {
  for (const auto& node : sight.nodes) {
    for (const auto& line : node.gpus) {
      const auto words = split(line, ' ');
      if (words.size() != 4) continue;
      for (auto& rank : sight.ranks) {
        if (rank.node != node.node || std::to_string(rank.pid) != words[0]) continue;
        rank.gpus += cat({rank.gpus.empty() ? "" : ", ", printable(words[1]), " (", printable(words[2]), " %)"});
        rank.gpu_ids.emplace_back(printable(words[3]));
      }
    }
  }
}

}  // namespace

std::string own_path() {
  std::array<char, PATH_MAX> path;
  const auto size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size <= 0 ? "" : std::string(path.data(), static_cast<std::size_t>(size));
}

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (const auto folder : split(path == nullptr ? "" : path, ':')) {
    auto found = cat({folder, "/", name});
    if (is_program(found)) return found;
  }
  const auto own = own_path();
  auto beside = cat({own.substr(0, own.rfind('/') + 1), name});
  return is_program(beside) ? beside : "";
}

Result<SlurmCommands> find_slurm_commands() {
  SlurmCommands slurm;
  for (const auto& [name, path] : {std::pair{"srun", &slurm.srun},
                                   {"scontrol", &slurm.scontrol},
                                   {"squeue", &slurm.squeue},
                                   {"scancel", &slurm.scancel}}) {
    *path = find_program(name);
    if (path->empty()) {
      return fail(
          ErrorCode::kMissing,
          cat({"looked for ", name,
               " in PATH, which has none; run this command on a host with Slurm's commands, such as a login node"}));
    }
  }
  return slurm;
}

Result<std::string> run_command(const std::vector<std::string>& words, std::chrono::seconds limit) {
  const auto deadline = Deadline::clock::now() + limit;
  ChildOutput program(
      words, {.joins_errors = true, .most = std::size_t{16} << 20, .environment = environment_for_srun(environ)});
  auto text = program.read(deadline);
  const auto status = program.wait(deadline);
  const auto name = words.front().substr(words.front().rfind('/') + 1);
  if (!status) {
    return fail(ErrorCode::kTimeout, cat({"asked Slurm with ", name, ", which did not answer within ",
                                          std::to_string(limit.count()), " s; slurmctld may be down"}));
  }
  if (*status != 0) {
    return fail(ErrorCode::kUnavailable,
                cat({"asked Slurm with ", name, ", which failed: ", printable(text.substr(0, text.find('\n')))}));
  }
  return text;
}

std::vector<std::string> environment_for_srun(const char* const* entries) {
  std::vector<std::string> kept{"SLURM_BOOTSTRAP=off"};
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const bool is_slurms = entry.starts_with("SLURM") || entry.starts_with("PMI") || entry.starts_with("SQUEUE_") ||
                           entry.starts_with("SCONTROL_") || entry.starts_with("SCANCEL_") ||
                           entry.starts_with("LD_PRELOAD=");
    if (!is_slurms || entry.starts_with("SLURM_CONF=")) kept.emplace_back(entry);
  }
  return kept;
}

StepSight look_at_step(const SlurmCommands& slurm, const ChosenStep& step, const LookOptions& options,
                       Deadline deadline) {
  StepSight sight;
  {
    std::vector<std::unique_ptr<Srun>> sruns;
    for (const auto& part : step.parts) {
      auto own = options;
      own.asks_ras = options.asks_ras && part.first_rank == 0;
      sruns.push_back(std::make_unique<Srun>(srun_words(slurm, step, part, own)));
    }
    if (!read_all(sruns, sight, deadline)) cancel(slurm, step, sruns, sight);
    for (const auto& srun : sruns) (void)srun->child().wait(Deadline::clock::now() + kPatience);
  }
  name_silent_nodes(step, sight);
  add_gpus(sight);
  return sight;
}

}  // namespace bootstrap
