// What a process finds about itself for a check: its plan, libraries, GPUs and machine.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_session.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include "comm/exchange.h"
#include "comm/nccl/cuda_device.h"
#include "comm/nccl/nccl_library.h"
#include "core/exchange/pmix_environment.h"
#include "core/hardware/gpu_list.h"
#include "core/plan/node_gpus.h"
#include "core/settings/settings.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/util/text.h"
#include "probe/machine.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "probe/read_gpus.h"
#include "tools/check/frameworks_script.h"
#include "tools/check/plugstack.h"

namespace bootstrap {

Descriptor start_program(std::vector<std::string> words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  Descriptor answer(ends[0]);
  const Descriptor output(ends[1]);
  const auto arguments = pointers_to(words);
  if (::fork() == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)::dup2(nothing, STDIN_FILENO);
    (void)::dup2(output.get(), STDOUT_FILENO);
    (void)::dup2(nothing, STDERR_FILENO);
    (void)::unsetenv("LD_PRELOAD");
    (void)::execvp(arguments.front(), arguments.data());
    ::_exit(127);  // as in shells
  }
  return answer;
}

std::string answer_of(const Descriptor& program, Deadline deadline) {
  constexpr std::size_t kMost = 65536;
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMost && program.is_open() && poll_until(program.get(), POLLIN, deadline)) {
    const auto count = ::read(program.get(), part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

namespace {

std::string text_of(const Environment& environment, std::string_view name) {
  return std::string(environment.get(name).value_or(""));
}

std::uint32_t fingerprint_of(const Layout& layout) {
  std::string hosts;
  for (Rank rank = 0; rank < layout.size(); ++rank) hosts += cat({layout.host_of(rank), ","});
  return fingerprint(hosts);
}

// The plugin's srun gives the tasks the order of the ranks; a library that is preloaded by hand knows no more than the
// tasks themselves.
SetBy setter_of(const OwnPlan& task, const Environment& environment) {
  if (task.is_set) {
    const bool is_preloaded = text_of(environment, "LD_PRELOAD").find("libbootstrap") != std::string::npos;
    return is_preloaded && task.facts.layout_source != LayoutSource::kStepLayout ? SetBy::kPreload : SetBy::kPlugin;
  }
  // user_init removes the decision, and leaves the layout of a step that it set up.
  const auto& id = task.facts.id;
  const auto decision = read_decision(text_of(environment, kDecisionVariable), id);
  if (decision) return decision->set_up == SetUp::kNothing ? SetBy::kNothing : SetBy::kUnread;
  return layout_is_for(text_of(environment, kLayoutVariable), id.job, id.step) ? SetBy::kRead : SetBy::kNothing;
}

// Compares with the record of what was set. If a plugin gave the task the environment of another task, that includes
// the record, and RANK is not the task's.
std::vector<std::string> changed_variables(const OwnPlan& task, const Environment& environment) {
  if (!task.is_set) return {};
  std::vector<std::string> names;
  const ExportRecord ours(environment);
  const auto rank = std::to_string(task.facts.ranks_here.front());
  for (const auto* const name : {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    const auto value = text_of(environment, name);
    const bool is_others = std::string_view(name) == "RANK" && value != rank;
    if (ours.has_set(name) && (is_others || !ours.is_ours(name, value))) names.emplace_back(name);
  }
  return names;
}

// As the program sees it: values in the environment count, whatever set them, unless they are of an outer step.
void add_plan(CheckReport& report, const OwnPlan& task, const Environment& environment) {
  const auto seen = [&](std::string_view name) {
    const auto planned = effective_value(task.task.variables, name);
    return task.is_set ? std::string(environment.get(name).value_or(planned)) : planned;
  };
  report.address = seen("MASTER_ADDR");
  const auto port = parse_unsigned(seen("MASTER_PORT"), 65535);
  report.port = static_cast<std::uint16_t>(port.value_or(0));
  report.set_by = setter_of(task, environment);
  report.changed = changed_variables(task, environment);
  if (!task.differences.empty()) report.plan_trouble = task.differences.front();
  if (report.plan_trouble.empty()) report.plan_trouble = describe_unknown(environment);
  if (!port) report.plan_trouble = cat({"MASTER_PORT is ", quote(seen("MASTER_PORT"), 20), ", which is no port"});
}

void add_libraries(CheckReport& report, const Environment& environment) {
  const auto pmix = pmix_version();
  if (pmix) report.pmix_client = *pmix;
  if (!pmix) report.pmix_trouble = pmix.error().message;

  const auto nccl = nccl::load(process_settings(environment).nccl_file.value);
  if (nccl) {
    report.nccl_version = (*nccl)->version > 0 ? nccl::version_text((*nccl)->version) : "unknown version";
    report.nccl_path = (*nccl)->path;
  } else if (environment.has("SLURM_BOOTSTRAP_NCCL") || nccl.error().code == ErrorCode::kUnsupported) {
    report.nccl_trouble = nccl.error().message;  // else there is no NCCL, and the user named none
  }
  report.openmp_threads = text_of(environment, "OMP_NUM_THREADS");
}

void add_machine(CheckReport& report) {
  auto machine = read_machine();
  report.host = std::move(machine.host);
  report.system = cat({machine.kernel, ", ", machine.libc});
  if (const auto cuda = driver_version()) {
    report.cuda = cat({std::to_string(*cuda / 1000), ".", std::to_string(*cuda % 1000 / 10)});
    if (!machine.nvidia_module.empty()) report.cuda += cat({" (driver ", machine.nvidia_module, ")"});
  }
  report.shm_free = machine.shm_free;
  report.locked_memory = machine.locked_memory;
  report.rdma_devices = machine.rdma_devices;
  const auto cores = cores_of(0);
  report.cpus = cores.to_list();
  report.cpu_count = static_cast<std::uint32_t>(cores.count());
}

void try_devices(CheckReport& report, const std::vector<Gpu>& gpus) {
  for (const auto& path : device_files_of(gpus)) {
    const auto access = try_device(path);
    if (access == GpuVisibility::Access::kOpen) report.open_gpus.push_back(path);
    if (access == GpuVisibility::Access::kDenied) report.closed_gpus.push_back(path);
  }
}

// What an entry of the list means to the vendor's library. An index counts the devices that can be opened, in the order
// of the PCI bus: all of the node where Slurm hides none.
std::string meaning_of(const std::string& entry, const CheckReport& report) {
  const auto index = parse_unsigned(entry, kMaxGpus - 1);
  if (!index) return entry;
  if (report.open_gpus.empty() && report.closed_gpus.empty()) return cat({"GPU-", entry});  // there are no device nodes
  return *index < report.open_gpus.size() ? report.open_gpus[static_cast<std::size_t>(*index)] : "?";
}

// Position of the task's own GPU in its list: from its variable, or by the rule that programs follow without one.
std::optional<std::uint64_t> own_position(const OwnPlan& task, const Place& place, std::size_t listed) {
  if (task.is_set) return parse_unsigned(task.facts.environment.get(kGpuVariable).value_or(""), kMaxGpus - 1);
  if (task.step.gpus) return parse_unsigned(effective_value(task.task.variables, kGpuVariable), kMaxGpus - 1);
  return listed == 1 ? 0 : place.local_rank;
}

void add_gpus(CheckReport& report, const OwnPlan& task) {
  const auto& environment = task.facts.environment;
  const auto& settings = task.settings;
  report.has_gpus = has_gpus(environment);
  if (!report.has_gpus) return;
  const auto list = read_gpu_list(environment);
  const auto vendor = list ? list->kind->vendor : GpuVendor::kNvidia;
  const auto& place = task.facts.layout.place(report.rank);
  report.is_nvidia = vendor == GpuVendor::kNvidia;
  const auto owned = find_own_gpus(environment, &place);
  const auto cores = cores_of(0);
  report.near = {.near = (cores & owned.cores_near()).to_list(), .nearness = nearness_of(cores, owned.own_gpus())};
  report.leaves_gpus = settings.gpu.value == GpuMode::kOff;
  report.may_share_gpus = settings.gpu_share.value || environment.has("SLURM_SHARDS_ON_NODE") ||
                          environment.has("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  report.gpus_on_node = environment.number("SLURM_GPUS_ON_NODE").value_or(0);
  report.gpu_hint = task.facts.gpu_bind_option;
  try_devices(report, gpus_of(read_gpus(), vendor));
  if (!list) return;
  for (const auto& entry : list->entries) report.gpu_list.push_back(meaning_of(entry, report));
  const auto own = own_position(task, place, report.gpu_list.size());
  if (own && !report.leaves_gpus && *own < report.gpu_list.size()) {
    report.own_gpu = report.gpu_list[static_cast<std::size_t>(*own)];
  }
}

void add_plugin(CheckReport& report, const LocalPlugin& found) {
  report.plugin = found.version;
  report.plugin_slurm = found.slurm;
  if (found.plugstack.empty() || !found.version.empty()) return;  // in a container it may not be seen
  report.plugin_trouble =
      found.path.empty() ? cat({"no line of ", found.plugstack, " loads spank_bootstrap.so"}) : found.trouble;
}

// Where it is not preloaded, its constructor does nothing, and RTLD_LOCAL keeps its names from this program.
void add_library(CheckReport& report) {
  void* const library = ::dlopen("libbootstrap.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto version = reinterpret_cast<int (*)()>(::dlsym(library, "bootstrap_version"));
  if (version != nullptr) report.library = nccl::version_text(version());  // 10203 is "1.2.3", as in NCCL
}

// They run while this process looks at other things.
Programs start_programs() {
  return {start_program({"python3", "-c", kFrameworksScript}), start_program({"scontrol", "--version"})};
}

}  // namespace

void add_answers(CheckReport& report, const Programs& programs, Deadline deadline) {
  const auto printed = answer_of(programs.front(), deadline);  // by frameworks.py
  const auto lines = split(printed, '\n');  // the last one is empty, and others may have printed before
  if (lines.size() >= 5) {
    const auto* const begin = &lines[lines.size() - 5];
    report.python = begin[0];
    report.frameworks = begin[1];
    report.python_nccl = begin[2];
    report.python_nccl_path = begin[3];
  }
  // "slurm-wlm 22.05.8"
  const auto answer = answer_of(programs.back(), deadline);
  const auto version = split(answer, '\n').front();
  report.slurm = version.substr(version.rfind(' ') + 1);
}

Result<CheckSelf> look_at_self(const Environment& environment, bool asks_programs) {
  auto task = read_own_task(environment);
  if (!task) return fail(task.error());
  CheckSelf self;
  auto& report = self.report;
  self.facts = task->facts;
  report.rank = self.facts.ranks_here.front();
  add_plan(report, *task, environment);
  add_gpus(report, *task);
  const bool is_first_of_node = self.facts.layout.place(report.rank).local_rank == 0;
  if (is_first_of_node) {
    if (asks_programs) self.programs = start_programs();
    auto files = find_slurm_files(environment);
    if (files.plugin_dir.empty()) files.plugin_dir = kUsualPluginDirs;  // not each node asks slurmctld
    add_plugin(report, look_at_plugin(files));
    add_library(report);
  }
  report.size = static_cast<std::uint32_t>(self.facts.layout.size());
  report.layout = fingerprint_of(self.facts.layout);
  report.cpus_on_node = environment.number("SLURM_CPUS_ON_NODE").value_or(0);
  report.has_pmix = check_pmix_environment(environment, self.facts.id, report.rank).has_value();
  if (report.has_pmix) report.pmix_server = text_of(environment, "PMIX_VERSION");
  add_libraries(report, environment);
  add_machine(report);
  return self;
}

CheckFindings look_at_machine(const Environment& environment) {
  const auto programs = start_programs();
  CheckFindings findings;
  if (auto layout = Layout::make({{{"localhost"}, {1}, {0}}})) findings.layout = std::move(*layout);
  auto& report = findings.reports.emplace_back(CheckReport()).value();
  auto files = find_slurm_files(environment);
  findings.plugin = look_at_plugin(files);
  const auto& path = findings.plugin.path;
  const bool is_by_name = files.plugin_dir.empty() && !path.empty() && !path.starts_with('/');
  if (files.plugstack.empty() || is_by_name) {
    const auto config = start_program({"scontrol", "show", "config"});
    auto told = read_slurm_config(answer_of(config, Deadline::clock::now() + kTimeOfPrograms));
    if (told.plugin_dir.empty()) told.plugin_dir = kUsualPluginDirs;
    if (files.plugstack.empty()) files.plugstack = told.plugstack;
    files.plugin_dir = told.plugin_dir;
    findings.plugin = look_at_plugin(files);
  }
  add_library(report);
  add_libraries(report, environment);
  add_machine(report);
  try_devices(report, gpus_of(read_gpus(), GpuVendor::kNvidia));
  add_answers(report, programs, Deadline::clock::now() + kTimeOfPrograms);
  return findings;
}

}  // namespace bootstrap
