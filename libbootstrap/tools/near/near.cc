// slurm-bootstrap-near, which `slurm-bootstrap near` starts: binds this process to the cores near its own GPU, prefers
// their memory, and becomes the program; or prints how near they are.
// SPDX-License-Identifier: Apache-2.0
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/near_cores.h"
#include "core/plan/plan.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"

namespace bootstrap {
namespace {

// Reads this machine, or a file that lstopo wrote; null: it cannot be read. HWLOC_* variables do not count, no plugin
// is loaded (plugins connect to X servers and start OpenCL), and hwloc's x86 component does not query each CPU.
hwloc_topology_t load_topology(const char* file) {
  std::array<char, 32> no_plugins{"HWLOC_PLUGINS_PATH=/dev/null"}, no_x86{"HWLOC_COMPONENTS=-x86"};
  std::array<char*, 3> variables{no_plugins.data(), no_x86.data(), nullptr};
  char** const before = std::exchange(environ, variables.data());
  hwloc_topology_t topology = nullptr;
  const bool is_loaded = hwloc_topology_init(&topology) == 0 &&
                         (*file == '\0' || hwloc_topology_set_xml(topology, file) == 0) &&
                         hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
                         hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                         hwloc_topology_load(topology) == 0;
  environ = before;
  return is_loaded ? topology : nullptr;
}

CpuSet set_of(hwloc_const_bitmap_t bitmap) {
  CpuSet set;
  for (int cpu = -1; (cpu = hwloc_bitmap_next(bitmap, cpu)) >= 0 && cpu < static_cast<int>(CpuSet::kMaxCpus);) {
    set.add(static_cast<std::size_t>(cpu));
  }
  return set;
}

std::vector<CpuSet> sets_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<CpuSet> sets;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    sets.push_back(set_of(object->cpuset));
  }
  return sets;
}

// The NUMA nodes of these CPUs. A node without CPUs, such as the memory of a GPU or HBM, has in hwloc the CPUs of
// another node or of all, and a higher number than that node.
std::map<std::uint32_t, CpuSet> nodes_of(hwloc_topology_t topology, const CpuSet& cpus) {
  std::map<std::uint32_t, CpuSet> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes[node->os_index] = set_of(node->cpuset);
  }
  CpuSet seen;
  for (auto& [number, of_node] : nodes) {
    const auto together = seen | of_node;
    if (!(of_node & seen).empty()) of_node = {};
    seen = together;
  }
  std::erase_if(nodes, [&](const auto& node) { return (node.second & cpus).empty(); });
  return nodes;
}

CpuSet around(hwloc_topology_t topology, hwloc_obj_t device) {
  return set_of(hwloc_get_non_io_ancestor_obj(topology, device)->cpuset);
}

// By PCI codes and IDs: VGA and 3D controllers are 0300 and 0302, other display controllers 0380.
bool is_gpu(unsigned vendor, unsigned kind) {
  if (vendor == 0x10de) return kind >> 8 == 0x03;                   // NVIDIA
  return kind == 0x0380 && (vendor == 0x1002 || vendor == 0x8086);  // AMD, Intel
}

// The GPUs in a file of lstopo. For this machine read_gpus() finds more.
std::vector<Gpu> gpus_of_file(hwloc_topology_t topology) {
  const auto all = set_of(hwloc_topology_get_topology_cpuset(topology));
  std::vector<Gpu> gpus;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    if (!is_gpu(pci.vendor_id, pci.class_id)) continue;
    auto& gpu = gpus.emplace_back();
    gpu.pci = cat({to_hex(pci.domain, 4), ":", to_hex(pci.bus, 2), ":", to_hex(pci.dev, 2), ".", to_hex(pci.func)});
    gpu.near = around(topology, device);
    const auto nodes = nodes_of(topology, gpu.near);
    if (nodes.size() == 1 && gpu.near != nodes.begin()->second) gpu.l3 = std::exchange(gpu.near, nodes.begin()->second);
    if (nodes.size() > 1 && gpu.near == all) gpu.near = {};
    for (const auto& package : sets_of(topology, HWLOC_OBJ_PACKAGE)) {
      if (!gpu.near.empty() && gpu.near.is_within(package)) gpu.package = package;
    }
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& one, const Gpu& other) { return one.pci < other.pci; });
  return gpus;
}

bool is_openfabrics(hwloc_obj_t card) { return card->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS; }

// The network cards near these GPUs: for each GPU all cards that are closest to it, and none at another NUMA node. Only
// InfiniBand and RoCE if there are any, as UCX names them: "mlx5_0:1".
std::string cards_near(hwloc_topology_t topology, const std::vector<Gpu>& gpus) {
  std::vector<hwloc_obj_t> cards;
  for (hwloc_obj_t card = nullptr; (card = hwloc_get_next_osdev(topology, card)) != nullptr;) {
    if (is_openfabrics(card) || card->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) cards.push_back(card);
  }
  if (std::any_of(cards.begin(), cards.end(), is_openfabrics)) std::erase_if(cards, std::not_fn(is_openfabrics));
  std::vector<std::string> names;
  for (const auto& gpu : gpus) {
    auto* above = hwloc_get_pcidev_by_busidstring(topology, gpu.pci.c_str());
    for (bool is_found = false; above != nullptr && !is_found; above = above->parent) {
      if (nodes_of(topology, above->cpuset == nullptr ? around(topology, above) : set_of(above->cpuset)).size() > 1)
        break;
      for (auto* const card : cards) {
        const auto* at = card->parent;
        while (at != nullptr && at != above) at = at->parent;
        if (at == nullptr) continue;
        is_found = true;
        auto name = cat({card->name, is_openfabrics(card) ? ":1" : ""});
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
      }
    }
  }
  return join(names, ",");
}

NearRow describe(hwloc_topology_t topology, const CpuSet& cores, const CpuSet& near, const std::vector<Gpu>& gpus) {
  std::vector<std::uint32_t> memory;
  for (const auto& [number, cpus] : nodes_of(topology, cores)) memory.push_back(number);
  std::vector<std::string> names;
  names.reserve(gpus.size());
  for (const auto& gpu : gpus) names.push_back(gpu.pci);
  return {cores.to_list(), write_ranges(memory),    join(names, ","), cards_near(topology, gpus),
          near.to_list(),  nearness_of(cores, gpus)};
}

// This process as a task of its node: of a step, of mpirun, or a worker of torchrun.
class NearTask {
 public:
  NearTask(hwloc_topology_t topology, std::string_view options) : topology_(topology), options_(options) {
    if (plan_) place_ = plan_->facts.layout.place(plan_->facts.ranks_here.front());
    if (is_torchruns_) {
      const auto number = [&](const char* name) { return environment_.number(name).value_or(0); };
      place_ = {.rank = number("RANK"), .local_rank = number("LOCAL_RANK"), .local_size = number("LOCAL_WORLD_SIZE")};
    }
    if (!plan_ && !is_torchruns_ && plan_.error().code != ErrorCode::kMissing) warn(plan_.error().message);
    // torchrun's own GPUs are those of all its workers.
    auto own = environment_;
    if (is_torchruns_ || !plan_ || !has_our_gpu_list(*plan_)) own.unset(kGroupVariable), own.unset(kGpuVariable);
    gpus_ = find_own_gpus(own, &place_);
  }

  void print_row() const {
    std::puts(write_record(describe(topology_, before_, choose().cpus, gpus_.own_gpus())).c_str());
  }

  void bind() const {
    if (has('u')) set_cards();
    const auto users = has('f') ? std::string() : users_binding();
    if (!users.empty()) {
      return warn(cat({"keeps the cores of your ", users, "; use --force for those near the GPU"}), true);
    }
    const auto [near, is_filled] = choose();
    const bool is_known = !place_of(gpus_.own_gpus()).empty();
    if (gpus_.own.empty()) warn("finds no GPU of its own, and keeps its cores", true);
    if (!gpus_.own.empty() && !is_known) warn("the place of its GPU is not known; it keeps its cores");
    if (is_known && near.empty()) {
      warn("the step has no core left near its GPU; it keeps its cores; use --gres-flags=enforce-binding with sbatch");
    }
    if (is_filled) warn(cat({"too few cores of the step are near its GPU; it has others, too: ", near.to_list()}));
    const auto& cores = near.empty() ? before_ : near;
    const auto bound = bind_to(cores);
    if (!bound) return warn(bound.error().message);
    prefer_memory_of(cores);
    set_threads(cores);
  }

 private:
  bool has(char option) const { return options_.find(option) != std::string_view::npos; }

  // Each task prints its own warning. `is_of_all`: rank 0 prints it for the step.
  void warn(std::string_view sentence, bool is_of_all = false) const {
    if (is_of_all && place_.rank != 0) return;
    const auto who = cat({"slurm-bootstrap near: rank ", std::to_string(place_.rank), ": warning: "});
    (void)std::fputs(cat({who, sentence, "\n"}).c_str(), stderr);
  }

  // The plugin in srun records the option. Without a record, lists of CPUs or NUMA nodes are the user's, masks Slurm's.
  std::string users_binding() const {
    if (!plan_ || plan_->facts.id.launcher != Launcher::kSlurm) return {};
    const auto noted = environment_.get(kCpuBindVariable).value_or("");
    const auto id = cat({to_string(plan_->facts.id), " "});
    if (noted.starts_with(id)) return std::string(noted.substr(id.size()));
    const auto type = environment_.get("SLURM_CPU_BIND_TYPE").value_or("");
    const bool is_users = !type.empty() && !type.starts_with("mask_cpu") && !type.starts_with("none");
    return is_users ? cat({"--cpu-bind=", type.substr(0, type.find(':'))}) : std::string();
  }

  // The CPUs that the kernel permits, if they are no more than the job has here: Slurm's cgroup, or a whole node. Else
  // the CPUs of this process: others would belong to another job.
  CpuSet cpus_of_step() const {
    CpuSet permitted;
    if (bind_to(set_of(hwloc_topology_get_topology_cpuset(topology_)))) permitted = cores_of(0);
    (void)bind_to(before_);
    return permitted.count() <= environment_.number("SLURM_CPUS_ON_NODE").value_or(0) ? permitted : before_;
  }

  // The request has a place for each GPU of the tasks, or for each GPU of the node if Slurm shows a task only its own.
  // So all tasks make the same request.
  NearCores choose() const {
    auto entries = gpus_.usable;
    const bool has_one_each = place_.local_size > 1 && (is_torchruns_ || !environment_.has(kGpuVariable));
    if (environment_.number("SLURM_GPUS_ON_NODE").value_or(0) > entries.size()) {
      entries.resize(gpus_.of_node.size());
      std::iota(entries.begin(), entries.end(), 0U);
    } else if (has_one_each && place_.local_size < entries.size()) {
      entries.resize(place_.local_size);
    }
    std::sort(entries.begin(), entries.end());
    NearRequest request{.cores = sets_of(topology_, HWLOC_OBJ_CORE),
                        .places = {},
                        .allowed = cpus_of_step(),
                        .needed = environment_.number("SLURM_CPUS_PER_TASK").value_or(1),
                        .is_exclusive = has('e')};
    if (is_torchruns_ || gpus_.own.empty()) request.needed = 1;
    request.each = std::max<std::size_t>(1, gpus_.own.size());
    // A GPU that tasks share has one place for each of them.
    const auto turns = entries.empty() ? 0 : (place_.local_size + entries.size() - 1) / entries.size();
    std::vector<std::size_t> own;
    for (std::size_t at = 0; at < turns * entries.size(); ++at) {
      const auto entry = entries[at % entries.size()];
      const bool is_own = std::find(gpus_.own.begin(), gpus_.own.end(), entry) != gpus_.own.end();
      if (is_own && at / entries.size() == place_.local_rank / entries.size()) own.push_back(at);
      request.places.push_back(entry == OwnGpus::kNotKnown ? CpuSet() : place_of({gpus_.of_node[entry]}));
    }
    NearCores choice;
    const auto found = find_near_cores(request, sets_of(topology_, HWLOC_OBJ_PACKAGE));
    for (const auto at : own) {
      choice.cpus = choice.cpus | found[at].cpus;
      choice.is_filled |= found[at].is_filled;
    }
    return choice;
  }

  // Without HWLOC_MEMBIND_STRICT, which would end programs when the memory is used up.
  void prefer_memory_of(const CpuSet& cores) const {
    auto* const nodes = hwloc_bitmap_alloc();
    for (const auto& [number, cpus] : nodes_of(topology_, cores)) hwloc_bitmap_set(nodes, number);
    if (hwloc_set_membind(topology_, nodes, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0) {
      warn(cat({"cannot prefer the memory of its cores: ", std::strerror(errno)}));
    }
  }

  // Replaces our value, and updates the record, so that an inner step recognizes it. Keeps a user's value.
  bool replace(const char* name, const std::string& value, bool adds) const {
    const auto old = environment_.get(name);
    const auto now = process_environment();
    const ExportRecord record(now);
    const bool is_ours = old && record.is_ours(name, *old);
    if (old ? !is_ours : !adds) return false;
    (void)::setenv(name, value.c_str(), 1);
    if (is_ours) (void)::setenv(std::string(kExportsVariable).c_str(), record.with(name, value).c_str(), 1);
    return true;
  }

  // Our OMP_NUM_THREADS was planned from the earlier cores.
  void set_threads(const CpuSet& cores) const {
    if (!plan_) return;
    auto facts = assumed_task(plan_->step, plan_->facts, 0);
    facts.cores = static_cast<std::uint32_t>(cores.count());
    facts.cores_of_node = environment_.number("SLURM_CPUS_ON_NODE").value_or(0);
    facts.cores_asked = environment_.number("SLURM_CPUS_PER_TASK").value_or(0);
    (void)replace("OMP_NUM_THREADS", std::to_string(thread_count(facts, place_.local_size)), false);
  }

  void set_cards() const {
    const auto cards = cards_near(topology_, gpus_.own_gpus());
    if (cards.empty()) return warn("--cards=ucx: no card is near the GPU; UCX chooses by itself");
    if (!replace("UCX_NET_DEVICES", cards, true)) warn("--cards=ucx: your UCX_NET_DEVICES stays; unset it", true);
  }

  hwloc_topology_t topology_;
  std::string_view options_;
  Environment environment_ = process_environment();
  Result<OwnPlan> plan_ = read_own_plan(environment_, read_mpirun_context(environment_));
  bool is_torchruns_ = environment_.has("TORCHELASTIC_RUN_ID");
  Place place_{.local_size = 1};
  OwnGpus gpus_;
  CpuSet before_ = cores_of(0);
};

void print_table_of_file(hwloc_topology_t topology, std::size_t tasks, bool is_exclusive) {
  NearRequest request{.cores = sets_of(topology, HWLOC_OBJ_CORE),
                      .places = {},
                      .allowed = set_of(hwloc_topology_get_topology_cpuset(topology)),
                      .is_exclusive = is_exclusive};
  const auto groups = groups_of_gpus(gpus_of_file(topology), tasks);
  for (const auto& group : groups) request.places.push_back(place_of(group));
  const auto found = find_near_cores(request, sets_of(topology, HWLOC_OBJ_PACKAGE));
  std::vector<NearRow> rows;
  std::vector<std::string> names;
  for (std::size_t task = 0; task < tasks; ++task) {
    rows.push_back(describe(topology, found[task].cpus, found[task].cpus, groups[task]));
    names.push_back(std::to_string(task));
  }
  (void)std::fputs(near_table(rows, names).c_str(), stdout);
}

// The words are those of tools/cli/check_command.cc: "bind", "row" or "table", letters of options, a file, tasks.
int run(char** words) {
  const std::string_view mode(words[1]), options(words[2]);
  auto* const topology = load_topology(words[3]);
  if (topology == nullptr && mode != "bind") {
    (void)std::fputs(cat({"slurm-bootstrap: hwloc cannot read ", words[3], "\n"}).c_str(), stderr);
    return 1;
  }
  if (mode == "table") {
    print_table_of_file(topology, parse_unsigned(words[4]).value_or(1), options.find('e') != std::string_view::npos);
  } else if (topology == nullptr) {
    (void)std::fputs("slurm-bootstrap near: warning: hwloc cannot read this machine; all cores stay\n", stderr);
  } else {
    const NearTask task(topology, options);
    mode == "row" ? task.print_row() : task.bind();
  }
  if (mode != "bind") {
    hwloc_topology_destroy(topology);
    return 0;
  }
  char** const program = words + 5;
  (void)::execvp(program[0], program);
  const int status = errno == ENOENT ? 127 : 126;  // as in shells
  const auto sentence = cat({"slurm-bootstrap near: cannot run ", program[0], ": ", std::strerror(errno), "\n"});
  (void)std::fputs(sentence.c_str(), stderr);
  return status;
}

}  // namespace
}  // namespace bootstrap

int main(int count, char** words) {
  if (count >= 5) return bootstrap::run(words);
  (void)std::fputs("slurm-bootstrap-near: start it as slurm-bootstrap near\n", stderr);
  return 2;
}
