// Which step is looked at, by what Slurm's own commands print about jobs and steps.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/step_choice.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "core/util/text.h"
#include "tools/check/child_output.h"
#include "tools/status/node_look.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kAskLimit(4);

bool is_program(const std::string& path) { return path.starts_with('/') && ::access(path.c_str(), X_OK) == 0; }

// The value of the first NAME=VALUE.
std::string field_of(const std::vector<std::string_view>& words, std::string_view name) {
  for (const auto word : words) {
    if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
      return std::string(word.substr(name.size() + 1));
    }
  }
  return "";
}

// "gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:2)" is 3. Indexes in the parentheses may have commas of their own.
std::uint64_t gpus_in(std::string_view gres) {
  std::uint64_t count = 0;
  const auto parts = replaced(gres, "(", ",(");
  for (const auto part : split(parts, ',')) {
    if (part.starts_with("gpu")) count += parse_unsigned(part.substr(part.rfind(':') + 1), 1024).value_or(0);
  }
  return count;
}

bool may_be_chosen(const StepLine& step) { return step.step != "extern" && step.name != kLookName; }

std::string list_of(const std::vector<StepLine>& steps) {
  constexpr std::size_t kMaxListed = 8;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(steps.size(), kMaxListed); ++i) {
    const auto& step = steps[i];
    shown.push_back(cat({step.job, ".", step.step, " (", printable(step.name), ", ", counted(step.tasks, "task"),
                         " on ", step.nodes, ")"}));
  }
  const auto more = steps.size() - shown.size();
  return cat({join(shown, ", "), more == 0 ? "" : cat({" and ", std::to_string(more), " more"})});
}

Result<std::vector<StepLine>> ask_steps(const SlurmCommands& slurm, const char* option, const std::string& value) {
  const auto text = run_command({slurm.squeue, "-h", "-s", "-o", kStepFormat, option, value}, kAskLimit);
  if (!text) return fail(text.error());
  return parse_steps(*text);
}

Result<std::vector<JobLine>> ask_job(const SlurmCommands& slurm, const std::string& job) {
  const auto text = run_command({slurm.scontrol, "show", "job", "-d", "-o", job}, kAskLimit);
  if (text) return parse_jobs(*text);
  if (text.error().message.find("nvalid job id") != std::string::npos) return std::vector<JobLine>();
  return fail(text.error());
}

}  // namespace

std::string own_path() { return link_target("/proc/self/exe"); }

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  const auto own = own_path();
  const auto folders = cat({path == nullptr ? "" : path, ":", own.substr(0, own.rfind('/'))});
  for (const auto folder : split(folders, ':')) {
    if (auto found = cat({folder, "/", name}); is_program(found)) return found;
  }
  return "";
}

Result<SlurmCommands> find_slurm_commands() {
  SlurmCommands slurm;
  for (const auto& [name, path] : {std::pair{"srun", &slurm.srun},
                                   {"scontrol", &slurm.scontrol},
                                   {"squeue", &slurm.squeue},
                                   {"scancel", &slurm.scancel}}) {
    *path = find_program(name);
    if (!path->empty()) continue;
    return fail(
        ErrorCode::kMissing,
        cat({"looked for ", name,
             " in PATH, which has none; run this command on a host with Slurm's commands, such as a login node"}));
  }
  return slurm;
}

Result<std::string> run_command(const std::vector<std::string>& words, std::chrono::seconds limit) {
  const auto deadline = Deadline::clock::now() + limit;
  ChildOutput program(
      words, {.joins_errors = true, .most = std::size_t{16} << 20, .environment = environment_for_srun(environ)});
  const auto& text = program.read(deadline);
  const auto status = program.wait(deadline);
  const auto asked = cat({"asked Slurm with ", words.front().substr(words.front().rfind('/') + 1)});
  if (!status) {
    return fail(ErrorCode::kTimeout, cat({asked, ", which did not answer within ", std::to_string(limit.count()),
                                          " s; slurmctld may be down"}));
  }
  if (*status == 0) return text;
  return fail(ErrorCode::kUnavailable, cat({asked, ", which failed: ", printable(text.substr(0, text.find('\n')))}));
}

std::vector<std::string> environment_for_srun(const char* const* entries) {
  std::vector<std::string> kept{"SLURM_BOOTSTRAP=off"};
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const auto begins = [entry](std::string_view prefix) { return entry.starts_with(prefix); };
    constexpr std::string_view kDropped[] = {"SLURM", "PMI", "SQUEUE_", "SCONTROL_", "SCANCEL_", "LD_PRELOAD="};
    if (begins("SLURM_CONF=") || std::none_of(std::begin(kDropped), std::end(kDropped), begins))
      kept.emplace_back(entry);
  }
  return kept;
}

std::vector<JobLine> parse_jobs(std::string_view text) {
  std::vector<JobLine> jobs;
  for (const auto line : split(text, '\n')) {
    if (!line.starts_with("JobId=")) continue;
    const auto words = split(line, ' ');
    auto& job = jobs.emplace_back();
    job.id = field_of(words, "JobId");
    job.leader = field_of(words, "HetJobId");
    job.component = parse_unsigned(field_of(words, "HetJobOffset")).value_or(0);
    job.user = field_of(words, "UserId");
    job.state = field_of(words, "JobState");
    const auto number = std::string_view(job.user).substr(std::min(job.user.rfind('('), job.user.size()));
    job.user_id = number.size() < 2 ? 0 : parse_unsigned(number.substr(1, number.size() - 2)).value_or(UINT64_MAX);
    auto least = UINT64_MAX;
    for (const auto word : words) {
      if (word.starts_with("GRES=")) least = std::min(least, gpus_in(word.substr(5)));
    }
    job.gpus = least == UINT64_MAX ? 0 : least;
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
  const bool names_step = dot != std::string_view::npos;
  StepArgument argument{std::string(text.substr(0, dot)), std::string(names_step ? text.substr(dot + 1) : "")};
  const bool is_step = !names_step || argument.step == "batch" || argument.step == "interactive" ||
                       parse_unsigned(argument.step, UINT32_MAX);
  const bool is_job = argument.job.size() < 32 && !text.empty() && is_digit(text.front()) &&
                      argument.job.find_first_not_of("0123456789_+") == std::string::npos;
  if (is_job && is_step) return argument;
  return fail(ErrorCode::kInvalid,
              cat({quoted(text), " is no JOBID or JOBID.STEP, such as 12 or 12.0; squeue -s --me lists your steps"}));
}

std::string refuse_job(const std::vector<JobLine>& jobs, std::string_view wanted, std::uint64_t user_id) {
  if (jobs.empty()) {
    return cat({"Slurm knows no job ", wanted, "; it has ended, or the number is wrong; squeue --me lists your jobs"});
  }
  const auto& job = jobs.front();
  const auto refuse = [wanted](std::string_view why) { return cat({"job ", wanted, why}); };
  if (job.user_id != user_id) {
    return refuse(cat({" belongs to ", printable(job.user), "; only this user can look at it"}));
  }
  if (job.state == "SUSPENDED") {
    return refuse(cat(
        {" is suspended, so that no step can look at it; its processes are stopped until: scontrol resume ", wanted}));
  }
  if (job.state == "PENDING") return refuse(cat({" has not started; squeue -j ", wanted, " shows why"}));
  return job.state == "RUNNING" ? "" : refuse(cat({" does not run; its state is ", printable(job.state)}));
}

Result<StepLine> choose_step(const std::vector<StepLine>& steps, const StepArgument& argument) {
  std::vector<StepLine> all;
  std::vector<StepLine> worlds;
  for (const auto& step : steps) {
    if (!may_be_chosen(step)) continue;
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
  auto& choice = worlds.empty() ? all : worlds;
  // The step of a batch script is there beside the steps that the script starts.
  const bool is_of_script = choice.size() == 2 && choice[0].job == choice[1].job && choice[0].step != choice[1].step;
  if (worlds.empty() && is_of_script) std::erase_if(choice, [](const StepLine& step) { return step.step == "batch"; });
  if (choice.size() == 1) return choice.front();
  return fail(ErrorCode::kInvalid, cat({whose, " several running steps; name one of them: ", list_of(choice)}));
}

ChosenStep join_parts(std::vector<JobLine> jobs, const std::vector<StepLine>& steps, const std::string& step) {
  ChosenStep chosen;
  chosen.step = step;
  chosen.is_heterogeneous = !jobs.front().leader.empty();
  chosen.leader = chosen.is_heterogeneous ? jobs.front().leader : jobs.front().id;
  std::sort(jobs.begin(), jobs.end(),
            [](const JobLine& one, const JobLine& other) { return one.component < other.component; });
  for (const auto& job : jobs) {
    // squeue writes a task of an array with two numbers, and that job has no components.
    const auto line = std::find_if(steps.begin(), steps.end(), [&](const StepLine& one) {
      return one.step == step && (one.job == job.id || !chosen.is_heterogeneous) && may_be_chosen(one);
    });
    if (line == steps.end()) continue;
    chosen.parts.push_back({.job = job.id,
                            .component = job.component,
                            .tasks = line->tasks,
                            .first_rank = chosen.tasks(),
                            .nodes = line->nodes,
                            .gpus = job.gpus});
  }
  return chosen;
}

Result<ChosenStep> find_step(const SlurmCommands& slurm, StepArgument argument) {
  if (argument.job.empty()) {
    const auto mine = ask_steps(slurm, "-u", std::to_string(::getuid()));
    if (!mine) return fail(mine.error());
    const auto chosen = choose_step(*mine, argument);
    if (!chosen) return fail(chosen.error());
    argument = {chosen->job, chosen->step};
  }
  // Of a heterogeneous job all components, whichever of them was named.
  auto jobs = ask_job(slurm, argument.job);
  if (jobs && !jobs->empty() && !jobs->front().leader.empty()) jobs = ask_job(slurm, jobs->front().leader);
  if (!jobs) return fail(jobs.error());
  auto refusal = refuse_job(*jobs, argument.job, ::getuid());
  if (!refusal.empty()) return fail(ErrorCode::kUnavailable, std::move(refusal));
  std::vector<std::string> ids;
  for (const auto& job : *jobs) ids.push_back(job.id);
  const auto steps = ask_steps(slurm, "-j", join(ids, ","));
  if (!steps) return fail(steps.error());
  const auto chosen = choose_step(*steps, argument);
  if (!chosen) return fail(chosen.error());
  return join_parts(std::move(*jobs), *steps, chosen->step);
}

}  // namespace bootstrap
