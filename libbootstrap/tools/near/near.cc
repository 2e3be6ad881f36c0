// slurm-bootstrap-near, which `slurm-bootstrap near` starts: binds this process to the cores near its own GPU, prefers
// their memory, and becomes the program; or prints how near they are.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/own_plan.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "tools/near/topology.h"

namespace bootstrap {
namespace {

// The words of tools/cli/check_command.cc: "bind", "row" or "rows", letters of options, a file, tasks, the program.
constexpr int kProgramWord = 5;

// This process as a task of its node: of a step, of mpirun, or a worker of torchrun.
struct NearTask {
  Environment environment = process_environment();
  Result<OwnPlan> plan = read_own_task(environment);
  Place place{.local_size = 1};
  OwnGpus gpus;
  bool is_torchruns = false;

  NearTask() {
    if (plan) place = plan->facts.layout.place(plan->facts.ranks_here.front());
    is_torchruns = environment.has("TORCHELASTIC_RUN_ID");
    auto own_gpus_of = environment;
    if (is_torchruns) {  // the GPUs that its parent was told are those of all workers
      place = {.rank = environment.number("RANK").value_or(0),
               .local_rank = environment.number("LOCAL_RANK").value_or(0),
               .local_size = std::max(1U, environment.number("LOCAL_WORLD_SIZE").value_or(1))};
    }
    const bool is_told = !is_torchruns && plan && has_our_gpu_list(*plan);
    for (const auto name : {kGroupVariable, kGpuVariable}) {
      if (!is_told) own_gpus_of.unset(name);
    }
    gpus = find_own_gpus(own_gpus_of, &place);
  }

  // Each task says it for itself, or one for its whole step.
  void warn(std::string_view sentence, bool is_of_all = false) const {
    if (is_of_all && place.rank != 0) return;
    (void)std::fputs(cat({"slurm-bootstrap near: rank ", std::to_string(place.rank), ": warning: ", sentence, "\n"}).c_str(),
                     stderr);
  }
};

CpuSet place_of(const std::vector<Gpu>& gpus) {
  CpuSet place;
  for (const auto& gpu : gpus) place = place | (gpu.l3.empty() ? gpu.near : gpu.l3);
  return place;
}

// The GPUs of each task of the node, where this one can know them, and which of these tasks it is. Else each GPU of the
// node counts as a task of its own.
std::vector<CpuSet> places_of_tasks(const NearTask& task, std::vector<std::size_t>& own) {
  const auto& [of_node, usable, own_gpus] = task.gpus;
  const auto size = task.place.local_size;
  const bool has_groups = !task.is_torchruns && task.environment.has(kGpuVariable);
  const auto gpus_of = [&](std::uint32_t local_rank) {
    std::vector<std::uint32_t> gpus = usable;
    if (has_groups || size > 1) gpus.clear();
    const auto positions = has_groups ? positions_of(local_rank, size, usable.size())
                                      : std::vector<std::uint32_t>{local_rank % static_cast<std::uint32_t>(usable.size())};
    for (const auto position : gpus.empty() ? positions : std::vector<std::uint32_t>()) gpus.push_back(usable[position]);
    return gpus;
  };
  const bool passes_for_alone = has_groups && task.environment.number("LOCAL_WORLD_SIZE").value_or(size) != size;
  const bool is_narrowed = task.environment.number("SLURM_GPUS_ON_NODE").value_or(0) > usable.size();
  std::vector<CpuSet> places;
  if (!passes_for_alone && !is_narrowed && gpus_of(task.place.local_rank) == own_gpus) {
    own = {task.place.local_rank};
    for (std::uint32_t one = 0; one < size; ++one) {
      std::vector<Gpu> gpus;
      for (const auto gpu : gpus_of(one)) gpus.push_back(gpu == OwnGpus::kNotKnown ? Gpu() : of_node[gpu]);
      places.push_back(place_of(gpus));
    }
    return places;
  }
  // As many for each task as for this one, if they follow each other, else one.
  const auto first = own_gpus.front();
  auto each = static_cast<std::uint32_t>(own_gpus.size());
  for (std::uint32_t i = 0; i < own_gpus.size(); ++i) {
    if (own_gpus[i] != first + i || first % own_gpus.size() != 0) each = 1;
  }
  for (std::uint32_t gpu = 0; gpu < of_node.size(); ++gpu) {
    if (gpu % each == 0) places.emplace_back();
    places.back() = places.back() | place_of({of_node[gpu]});
    const bool is_own = std::find(own_gpus.begin(), own_gpus.end(), gpu) != own_gpus.end();
    if (is_own && (own.empty() || own.back() != places.size() - 1)) own.push_back(places.size() - 1);
  }
  return places;
}

// What the kernel permits, where that is no more than the job has here: Slurm's cgroup. Else what Slurm bound the tasks of
// the node to, together; else what this process has.
CpuSet cpus_of_step(const NearTask& task, const CpuSet& own, const CpuSet& all) {
  CpuSet permitted;
  if (bind_to(all)) permitted = cores_of(0);
  (void)bind_to(own);
  if (permitted.count() <= task.environment.number("SLURM_CPUS_ON_NODE").value_or(0)) return permitted;
  if (!task.environment.get("SLURM_CPU_BIND_TYPE").value_or("").starts_with("mask_cpu")) return own;
  return own | (read_masks(task.environment.get("SLURM_CPU_BIND_LIST").value_or("")) & all);
}

// srun's plugin notes the option. Without it a list of CPUs or a NUMA node is the user's, and masks are Slurm's.
std::string users_binding(const NearTask& task) {
  const auto noted = task.environment.get(kCpuBindVariable).value_or("");
  const auto id = task.plan ? cat({to_string(task.plan->facts.id), " "}) : std::string();
  if (!id.empty() && noted.starts_with(id)) return std::string(noted.substr(id.size()));
  const auto type = task.environment.get("SLURM_CPU_BIND_TYPE").value_or("");
  const bool is_users = !type.empty() && !type.starts_with("mask_cpu") && !type.starts_with("none");
  return task.plan && task.plan->facts.id.launcher == Launcher::kSlurm && is_users ? cat({"--cpu-bind=", type})
                                                                                  : std::string();
}

struct NearChoice {
  CpuSet before;
  NearCores cores;  // none: it keeps what it has
};

NearChoice choose(const NearTask& task, const NodeTopology& topology, bool is_exclusive) {
  NearChoice choice{.before = cores_of(0), .cores = {}};
  if (place_of(task.gpus.own_gpus()).empty()) return choice;
  std::vector<std::size_t> own;
  NearRequest request{.places = places_of_tasks(task, own),
                      .allowed = cpus_of_step(task, choice.before, topology.cpus()),
                      .cpus_per_task = task.environment.number("SLURM_CPUS_PER_TASK").value_or(1),
                      .is_exclusive = is_exclusive};
  if (task.is_torchruns || !task.plan) request.cpus_per_task = 1;
  const auto found = find_near_cores(topology.core_map(), request);
  for (const auto index : own) {
    choice.cores.cpus = choice.cores.cpus | found[index].cpus;
    choice.cores.is_filled |= found[index].is_filled;
  }
  return choice;
}

NearRow describe(const NodeTopology& topology, const CpuSet& cores, const CpuSet& near, const std::vector<Gpu>& gpus) {
  std::vector<std::string> names;
  for (const auto& gpu : gpus) names.push_back(gpu.pci);
  return {.cores = cores.to_list(),
          .memory = write_ranges(topology.memory_of(cores)),
          .gpu = join(names, ","),
          .cards = join(topology.cards_near(gpus), ","),
          .near = near.to_list(),
          .nearness = nearness_of(cores, gpus)};
}

// A value of ours goes into the record, so that a step inside knows it; a user's stays.
bool replace_ours(const NearTask& task, const char* name, const std::string& value) {
  const auto now = process_environment();
  const ExportRecord record(now);
  const auto old = now.get(name);
  const bool is_ours = old && record.is_ours(name, *old);
  if (old && !is_ours) return false;
  (void)::setenv(name, value.c_str(), 1);
  if (task.plan && is_ours) (void)::setenv(std::string(kExportsVariable).c_str(), record.with(name, value).c_str(), 1);
  return true;
}

// Ours was planned from the cores before.
void set_threads(const NearTask& task, const CpuSet& cores) {
  const auto value = task.environment.get("OMP_NUM_THREADS");
  if (!value || !task.plan || !ExportRecord(task.environment).is_ours("OMP_NUM_THREADS", *value)) return;
  auto facts = assumed_task(task.plan->step, task.plan->facts, 0);
  facts.cores = static_cast<std::uint32_t>(cores.count());
  facts.cores_of_node = task.environment.number("SLURM_CPUS_ON_NODE").value_or(0);
  facts.cores_asked = task.environment.number("SLURM_CPUS_PER_TASK").value_or(0);
  (void)replace_ours(task, "OMP_NUM_THREADS", std::to_string(thread_count(facts, task.place.local_size)));
}

void set_cards(const NearTask& task, const NodeTopology& topology) {
  const auto cards = join(topology.cards_near(task.gpus.own_gpus()), ",");
  if (cards.empty()) return task.warn("--cards=ucx: no card is near the GPU; UCX chooses by itself");
  if (!replace_ours(task, "UCX_NET_DEVICES", cards))
    task.warn("--cards=ucx: UCX_NET_DEVICES is set already and stays; unset it to have the near cards", true);
}

void bind_this_process(const NearTask& task, const NodeTopology& topology, std::string_view options) {
  const auto has = [&](char option) { return options.find(option) != std::string_view::npos; };
  if (has('u')) set_cards(task, topology);
  const auto users = has('f') ? std::string() : users_binding(task);
  if (!users.empty()) {
    return task.warn(cat({"keeps the cores of your ", users, "; use --force for those near the GPU"}), true);
  }
  const auto choice = choose(task, topology, has('e'));
  auto cores = choice.cores.cpus;
  if (task.gpus.own.empty()) task.warn("finds no GPU of its own, and keeps its cores", true);
  if (!task.gpus.own.empty() && place_of(task.gpus.own_gpus()).empty())
    task.warn("the place of its GPU is not known; it keeps its cores");
  else if (!task.gpus.own.empty() && cores.empty())
    task.warn("the step has no core near its GPU; it keeps its cores; use --gres-flags=enforce-binding with sbatch");
  if (choice.cores.is_filled) {
    task.warn(cat({"too few cores of the step are near its GPU; it has others, too: ", cores.to_list()}));
  }
  if (cores.empty()) cores = choice.before;
  const auto bound = bind_to(cores);
  if (!bound) return task.warn(bound.error().message);
  const auto preferred = topology.prefer_memory_of(cores);
  if (!preferred) task.warn(preferred.error().message);
  set_threads(task, cores);
}

int print_rows_of_file(const NodeTopology& topology, std::size_t tasks, bool is_exclusive) {
  const auto gpus = topology.gpus();
  NearRequest request{.places = {}, .allowed = topology.cpus(), .is_exclusive = is_exclusive};
  std::vector<std::vector<Gpu>> own(tasks);
  const auto groups = groups_of_gpus(gpus, tasks);
  for (std::size_t task = 0; task < tasks; ++task) {
    for (const auto index : groups[task]) own[task].push_back(gpus[index]);
    request.places.push_back(place_of(own[task]));
  }
  const auto found = find_near_cores(topology.core_map(), request);
  for (std::size_t task = 0; task < tasks; ++task) {
    std::puts(write_record(describe(topology, found[task].cpus, found[task].cpus, own[task])).c_str());
  }
  return 0;
}

int run(const std::vector<std::string>& words, char** program) {
  const auto &mode = words[1], &options = words[2], &file = words[3];
  const bool is_exclusive = options.find('e') != std::string::npos;
  const auto topology = NodeTopology::load(file);
  if (mode == "rows") {
    if (topology) return print_rows_of_file(*topology, parse_unsigned(words[4]).value_or(1), is_exclusive);
    (void)std::fputs(cat({"slurm-bootstrap near: ", topology.error().message, "\n"}).c_str(), stderr);
    return 1;
  }
  const NearTask task;
  if (mode == "row" && topology) {
    const auto choice = choose(task, *topology, is_exclusive);
    std::puts(write_record(describe(*topology, choice.before, choice.cores.cpus, task.gpus.own_gpus())).c_str());
    return 0;
  }
  if (topology) bind_this_process(task, *topology, options);
  if (!topology) task.warn(cat({topology.error().message, "; it keeps its cores"}));
  if (mode != "bind") return 1;
  (void)::execvp(program[0], program);
  constexpr int kCannotRun = 126, kNotFound = 127;  // as in shells
  const int status = errno == ENOENT ? kNotFound : kCannotRun;
  (void)std::fputs(cat({"slurm-bootstrap near: cannot run ", program[0], ": ", std::strerror(errno), "\n"}).c_str(), stderr);
  return status;
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** arguments) {
  if (count < bootstrap::kProgramWord) {
    (void)std::fputs("slurm-bootstrap-near: start it as slurm-bootstrap near\n", stderr);
    return 2;
  }
  return bootstrap::run({arguments, arguments + count}, arguments + bootstrap::kProgramWord);
}
