// Which step is looked at, by what Slurm's own commands print about jobs and steps.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/step_choice.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxListed = 8;

// The value of the first NAME=VALUE in a line with blanks between them.
std::string field_of(const std::vector<std::string_view>& words, std::string_view name) {
  for (const auto word : words) {
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
      return std::string(word.substr(name.size() + 1));
    }
  }
  return "";
}

// "gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:2)" is 3.
std::uint64_t gpus_in(std::string_view gres) {
  std::uint64_t count = 0;
  while (!gres.empty()) {
    const auto open = gres.find('(');
    const auto item = gres.substr(0, std::min(open, gres.find(',')));
    if (item.starts_with("gpu")) count += parse_unsigned(item.substr(item.rfind(':') + 1), 1024).value_or(0);
    // Indexes in the parentheses have commas of their own.
    auto end = open == std::string_view::npos || item.size() < open ? item.size() : gres.find(')');
    end = std::min(gres.find(',', end), gres.size());
    gres.remove_prefix(std::min(end + 1, gres.size()));
  }
  return count;
}

bool is_looked_at(const StepLine& step) { return step.step != "extern" && step.name != kLookName; }

std::string describe(const StepLine& step) {
  return cat({step.job, ".", step.step, " (", printable(step.name), ", ", counted(step.tasks, "task"), " on ",
              step.nodes, ")"});
}

std::string list_of(const std::vector<StepLine>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size() && i < kMaxListed; ++i) {
    text += cat({i == 0 ? "" : ", ", describe(steps[i])});
  }
  if (steps.size() > kMaxListed) text += cat({" and ", std::to_string(steps.size() - kMaxListed), " more"});
  return text;
}

bool is_job_id(std::string_view text) {
  return !text.empty() && text.size() < 32 && is_digit(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '_' || c == '+'; });
}

}  // namespace

std::vector<JobLine> parse_jobs(std::string_view text) {
  std::vector<JobLine> jobs;
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with("JobId=")) continue;
    const auto words = split(line, ' ');
    JobLine job;
    job.id = field_of(words, "JobId");
    job.leader = field_of(words, "HetJobId");
    job.component = parse_unsigned(field_of(words, "HetJobOffset")).value_or(0);
    job.user = field_of(words, "UserId");
    job.state = field_of(words, "JobState");
    const auto open = job.user.rfind('(');
    if (open != std::string::npos) {
      job.user_id =
          parse_unsigned(std::string_view(job.user).substr(open + 1, job.user.size() - open - 2)).value_or(UINT64_MAX);
    }
    bool is_first = true;
    for (const auto word : words) {
      if (!word.starts_with("GRES=")) continue;
      const auto gpus = gpus_in(word.substr(5));
      job.gpus = is_first ? gpus : std::min(job.gpus, gpus);
      is_first = false;
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::vector<StepLine> parse_steps(std::string_view text) {
  std::vector<StepLine> steps;
  for (const auto line : split(text, '\n')) {
    const auto words = split(line, '|');
    const auto dot = words.front().find('.');
    const auto tasks = words.size() < 4 ? std::nullopt : parse_unsigned(words[1]);
    if (!tasks || dot == std::string_view::npos) continue;
    const auto name_at = static_cast<std::size_t>(words[3].data() - line.data());
    steps.push_back({.job = std::string(words[0].substr(0, dot)),
                     .step = std::string(words[0].substr(dot + 1)),
                     .tasks = *tasks,
                     .nodes = std::string(words[2]),
                     .name = std::string(line.substr(name_at))});
  }
  return steps;
}

Result<StepArgument> parse_step_argument(std::string_view text) {
  const auto dot = text.find('.');
  StepArgument argument{.job = std::string(text.substr(0, dot)), .step = {}};
  if (dot != std::string_view::npos) argument.step = text.substr(dot + 1);
  const bool is_step = dot == std::string_view::npos || argument.step == "batch" || argument.step == "interactive" ||
                       parse_unsigned(argument.step, UINT32_MAX);
  if (is_job_id(argument.job) && is_step) return argument;
  return fail(ErrorCode::kInvalid,
              cat({quoted(text), " is no JOBID or JOBID.STEP, such as 12 or 12.0; squeue -s --me lists your steps"}));
}

std::string ChosenStep::name() const { return cat({leader, ".", step}); }

std::uint64_t ChosenStep::tasks() const {
  std::uint64_t count = 0;
  for (const auto& part : parts) count += part.tasks;
  return count;
}

std::string refuse_job(const std::vector<JobLine>& jobs, std::string_view wanted, std::uint64_t user_id) {
  if (jobs.empty()) {
    return cat({"Slurm knows no job ", wanted, "; it has ended, or the number is wrong; squeue --me lists your jobs"});
  }
  const auto& job = jobs.front();
  if (job.user_id != user_id) {
    return cat({"job ", wanted, " belongs to ", printable(job.user), "; only this user can look at it"});
  }
  if (job.state == "SUSPENDED") {
    return cat({"job ", wanted,
                " is suspended, so that no step can look at it; its processes are stopped until: scontrol resume ",
                wanted});
  }
  if (job.state == "PENDING") return cat({"job ", wanted, " has not started; squeue -j ", wanted, " shows why"});
  if (job.state != "RUNNING") return cat({"job ", wanted, " does not run; its state is ", printable(job.state)});
  return "";
}

Result<StepLine> choose_step(const std::vector<StepLine>& steps, const StepArgument& argument) {
  std::vector<StepLine> all;
  std::vector<StepLine> worlds;
  for (const auto& step : steps) {
    if (!is_looked_at(step)) continue;
    if (!argument.step.empty() && step.step == argument.step) return step;
    all.push_back(step);
    if (step.tasks > 1) worlds.push_back(step);
  }
  const auto whose = argument.job.empty() ? std::string("you have") : cat({"job ", argument.job, " has"});
  if (all.empty()) {
    return fail(ErrorCode::kMissing,
                cat({whose, " no running step", argument.job.empty() ? "; squeue --me lists your jobs" : ""}));
  }
  if (!argument.step.empty()) {
    return fail(ErrorCode::kMissing, cat({whose, " no running step ", argument.step, "; running: ", list_of(all)}));
  }
  if (worlds.size() == 1) return worlds.front();
  // The step of a batch script is there beside the steps that the script starts.
  if (worlds.empty()) {
    const auto started =
        std::find_if(all.begin(), all.end(), [](const StepLine& step) { return step.step != "batch"; });
    if (all.size() == 1) return all.front();
    if (all.size() == 2 && all[0].job == all[1].job && all[0].step != all[1].step && started != all.end()) {
      return *started;
    }
  }
  return fail(ErrorCode::kInvalid,
              cat({whose, " several running steps; name one of them: ", list_of(worlds.empty() ? all : worlds)}));
}

ChosenStep join_parts(const std::vector<JobLine>& jobs, const std::vector<StepLine>& steps, const std::string& step) {
  ChosenStep chosen;
  chosen.step = step;
  chosen.is_heterogeneous = !jobs.front().leader.empty();
  chosen.leader = chosen.is_heterogeneous ? jobs.front().leader : jobs.front().id;
  auto in_order = jobs;
  std::sort(in_order.begin(), in_order.end(),
            [](const JobLine& one, const JobLine& other) { return one.component < other.component; });
  std::uint64_t ranks = 0;
  for (const auto& job : in_order) {
    for (const auto& line : steps) {
      // squeue writes a task of an array with two numbers, and that job has no components.
      if (line.step != step || (line.job != job.id && chosen.is_heterogeneous) || !is_looked_at(line)) continue;
      chosen.parts.push_back({.job = job.id,
                              .component = job.component,
                              .tasks = line.tasks,
                              .first_rank = ranks,
                              .nodes = line.nodes,
                              .gpus = job.gpus});
      ranks += line.tasks;
      break;
    }
  }
  return chosen;
}

}  // namespace bootstrap
