// The rows about the nodes: CPUs, memory and system, GPUs and what they are used through, and the ways between them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "core/util/text.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// "8 MiB", "11 GiB".
std::string amount(std::uint64_t bytes) {
  const auto mebibytes = bytes >> 20;
  return mebibytes < 10240 ? cat({std::to_string(mebibytes), " MiB"}) : cat({std::to_string(mebibytes >> 10), " GiB"});
}

// NCCL's buffers between ranks of a node and PyTorch's data loaders live there. Docker gives a container 64 MiB in
// all, which is what NCCL's "failed to extend /dev/shm/nccl-..." comes from.
constexpr std::uint64_t kSharedMemoryForRank = 64 * kMiB;

// CPUs that Slurm gave to the step on this node for each of its ranks; 0: unknown.
std::uint64_t share_of_cpus(const CheckFindings& step, const CheckReport& report) {
  return report.cpus_on_node / step.layout.place(report.rank).local_size;
}

bool has_too_many_threads(const CheckReport& report) {
  const auto threads = parse_unsigned(report.openmp_threads, UINT32_MAX);
  return threads && report.cpu_count > 0 && *threads > report.cpu_count;
}

constexpr const char* kOneEach = "use a GPU for each rank: srun --gres=gpu:N with N tasks per node";

// The row of a library that only some ranks have.
CheckRow partly(const CheckFindings& step, const Variant& version, std::vector<Rank> without) {
  auto text = cat({version.value, " on some ranks, missing on ", counted(without.size(), "rank")});
  return step.any(&CheckReport::is_nvidia) ? failed(std::move(text), std::move(without))
                                           : warning(std::move(text), std::move(without));
}

bool is_mig(const CheckReport& report) {
  return std::any_of(report.gpu_list.begin(), report.gpu_list.end(),
                     [](const std::string& name) { return name.starts_with("MIG-"); });
}

// Ranks that share a GPU of their node, and the first such GPU. Without a text: none does.
CheckRow sharing_row(const CheckFindings& step) {
  std::map<std::pair<std::uint32_t, std::string_view>, std::vector<Rank>> users;
  for (const auto& report : step.reports) {
    if (report && !report->own_gpu.empty())
      users[{step.layout.place(report->rank).node, report->own_gpu}].push_back(report->rank);
  }
  std::string text;
  std::vector<Rank> ranks;
  for (const auto& [gpu, of_gpu] : users) {
    if (of_gpu.size() < 2) continue;
    if (ranks.empty()) {
      text = cat({counted(of_gpu.size(), "rank"), " of ", step.layout.hosts()[gpu.first], " share ", gpu.second});
    }
    ranks.insert(ranks.end(), of_gpu.begin(), of_gpu.end());
  }
  if (ranks.empty()) return {};
  std::sort(ranks.begin(), ranks.end());
  constexpr const char* kWhy = "; NCCL needs a GPU for each rank";
  if (step.first().may_share_gpus) return warning(cat({text, ", as requested", kWhy}), ranks);
  return failed(cat({text, kWhy}), ranks, kOneEach);
}

CheckRow gpus_in_order(const CheckFindings& step) {
  std::set<std::pair<std::uint32_t, std::string_view>> all;
  for (const auto& report : step.reports) {
    if (!report) continue;
    for (const auto& name : report->gpu_list) all.emplace(step.layout.place(report->rank).node, name);
  }
  const auto nodes = step.layout.node_count();
  const auto where = nodes == 1 ? std::string() : cat({" on ", counted(nodes, "node")});
  const bool is_untried = step.any([](auto& report) { return report.open_gpus.empty(); });
  return ok(cat(
      {counted(all.size(), "GPU"), where, is_untried ? "; each rank has its own" : "; each rank can open its own"}));
}

constexpr const char* kRefuses =
    "; different versions of NCCL make no communicator, and some wait for each other for ever";

std::string nccl_of_python(const CheckFindings& step, const Variant& version) {
  return cat({"Python loads ", version.value, " (", step.report(version.ranks.front()).python_nccl_path, ")"});
}

}  // namespace

CheckRow cpu_row(const CheckFindings& step) {
  auto alone = step.where([&](auto& report) { return report.cpu_count == 1 && share_of_cpus(step, report) > 1; });
  if (!alone.empty()) {
    const auto share = share_of_cpus(step, step.report(alone.front()));
    return warning(
        cat({"bound to one CPU each; the step has ", std::to_string(share), " for each rank"}), std::move(alone),
        "use srun --cpus-per-task=N (since Slurm 22.05 srun does not take it from sbatch), or --cpu-bind=none");
  }
  const auto [least, most] = step.range(&CheckReport::cpu_count);
  auto text = least == most ? cat({counted(least, "CPU"), " for each rank"})
                            : cat({std::to_string(least), " to ", std::to_string(most), " CPUs for a rank"});
  auto crowded = step.where(has_too_many_threads);
  if (crowded.empty()) return ok(std::move(text));
  text += cat({", but OMP_NUM_THREADS is ", step.report(crowded.front()).openmp_threads});
  return warning(std::move(text), std::move(crowded), "set OMP_NUM_THREADS to at most the CPUs of a rank");
}

CheckRow near_row(const CheckFindings& step) {
  const auto is_known = [](auto& report) { return report.near.nearness != Nearness::kUnknown; };
  if (!step.any(is_known)) return {};
  auto far = step.where([&](auto& report) { return is_known(report) && report.near.near.empty(); });
  if (!far.empty()) {
    return warning("these ranks run on cores far from their GPU", std::move(far),
                   "start the program with slurm-bootstrap near; slurm-bootstrap near --show shows the places");
  }
  const auto wide = step.where([&](auto& report) { return report.near.nearness > Nearness::kNumaNode; });
  if (wide.empty()) return ok("all ranks run on cores near their GPU");
  return ok(cat({counted(wide.size(), "rank"),
                 " may also run on cores far from the GPU, if not started with slurm-bootstrap near"}));
}

CheckRow shm_row(const CheckFindings& step) {
  const auto text =
      cat({step.layout.node_count() > 1 ? "at least " : "", amount(step.range(&CheckReport::shm_free).first), " free"});
  auto tight = step.where(
      [&](auto& report) { return report.shm_free < kSharedMemoryForRank * step.layout.place(report.rank).local_size; });
  if (tight.empty()) return ok(text);
  return warning(cat({text, "; NCCL and data loaders need ", amount(kSharedMemoryForRank), " for each rank"}),
                 std::move(tight), "remove old files from it; in a container use --shm-size=1g or --ipc=host");
}

CheckRow locked_memory_row(const CheckFindings& step) {
  const auto least = step.range(&CheckReport::locked_memory).first;
  const auto text = least == UINT64_MAX ? std::string("no limit") : cat({"limit ", amount(least)});
  if (!step.any(&CheckReport::rdma_devices)) return ok(cat({text, "; there is no RDMA device"}));
  auto limited = step.where([](auto& report) { return report.rdma_devices > 0 && report.locked_memory != UINT64_MAX; });
  if (limited.empty()) return ok(text);
  return warning(cat({text, "; RDMA needs to lock more"}), std::move(limited),
                 "set LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf");
}

CheckRow system_row(const CheckFindings& step) {
  const auto systems = step.variants(&CheckReport::system);
  if (systems.empty()) return absent("unknown");
  if (systems.size() == 1) return ok(systems.front().value);
  return warning(describe_variants(systems), odd_ranks(systems),
                 "programs built on one node may not start on the other");
}

CheckRow nccl_row(const CheckFindings& step) {
  const auto troubles = step.variants(&CheckReport::nccl_trouble);
  if (!troubles.empty()) {
    return failed(troubles.front().value, step.where([](auto& report) { return !report.nccl_trouble.empty(); }));
  }
  const auto versions = step.variants(&CheckReport::nccl_version);
  const auto of_python = step.variants(&CheckReport::python_nccl);
  if (of_python.size() > 1) {
    return failed(cat({"Python loads ", describe_variants(of_python, "node"), kRefuses}),
                  on_same_nodes(step, odd_ranks(of_python)), "use the same Python environment on all nodes");
  }
  if (versions.empty() && !of_python.empty()) return ok(nccl_of_python(step, of_python.front()));
  if (versions.empty()) return absent("no libnccl.so.2 or librccl.so.1 that the loader finds");
  if (versions.size() > 1) {
    return failed(cat({describe_variants(versions), kRefuses}), odd_ranks(versions),
                  "install one version on all nodes, or name the file to load: SLURM_BOOTSTRAP_NCCL=PATH");
  }
  auto without = step.where([](auto& report) { return report.nccl_version.empty(); });
  if (!without.empty()) return partly(step, versions.front(), std::move(without));
  const auto paths = step.variants(&CheckReport::nccl_path);
  auto text = versions.front().value;
  if (paths.size() == 1) text += cat({" (", paths.front().value, ")"});
  if (paths.size() > 1) text += cat({" from ", std::to_string(paths.size()), " different places"});
  if (!of_python.empty() && of_python.front().value != versions.front().value) {
    text += cat({"; ", nccl_of_python(step, of_python.front())});
  }
  return ok(std::move(text));
}

CheckRow driver_row(const CheckFindings& step) {
  const auto drivers = step.variants(&CheckReport::cuda);
  if (drivers.empty()) {
    if (!step.any(&CheckReport::is_nvidia)) return absent("no driver; no GPU of this step needs one");
    return warning("the step has GPUs, but libcuda.so.1 is missing", {},
                   "install the driver on the nodes; in a container use its option for GPUs (--nv, --gpus)");
  }
  if (drivers.size() > 1) {
    return warning(describe_variants(drivers), odd_ranks(drivers),
                   "install one driver on all nodes: NCCL may choose different paths on different drivers");
  }
  auto without = step.where([](auto& report) { return report.cuda.empty(); });
  if (!without.empty()) return partly(step, drivers.front(), std::move(without));
  return ok(drivers.front().value);
}

CheckRow gpu_row(const CheckFindings& step) {
  if (!step.any(&CheckReport::has_gpus)) return absent("the step has none");
  const auto without = step.where(std::not_fn(&CheckReport::has_gpus));
  if (!without.empty()) return failed("some ranks have GPUs and these have none", without);
  const auto lost = step.where([](auto& report) { return has(report.gpu_list, "?"); });
  if (!lost.empty()) {
    return failed("the list names a GPU that does not exist or cannot be opened", lost,
                  "the list is for other nodes, or was changed after Slurm set it; see slurm-bootstrap explain --gpus");
  }
  const auto closed = step.where([](auto& report) { return has(report.closed_gpus, report.own_gpu); });
  if (!closed.empty()) {
    return failed("these ranks cannot open their own GPU", closed, cat({"srun ", step.first().gpu_hint}));
  }
  if (auto shared = sharing_row(step); !shared.text.empty()) return shared;
  if (step.first().leaves_gpus) return ok("the program chooses them (--bootstrap-gpu=off)");
  const auto none = step.where([](auto& report) { return report.own_gpu.empty(); });
  if (!none.empty()) return failed("fewer GPUs than ranks on a node; these ranks have none", none, kOneEach);
  return gpus_in_order(step);
}

CheckRow peer_row(const CheckFindings& step) {
  if (!step.any(&CheckReport::has_gpus)) return absent("the step has no GPUs");
  if (step.any(is_mig)) return absent("MIG instances have no peers");
  std::map<std::uint32_t, std::set<std::string_view>> open;  // by node: what any of its ranks can open
  for (const auto& report : step.reports) {
    if (report) open[step.layout.place(report->rank).node].insert(report->open_gpus.begin(), report->open_gpus.end());
  }
  if (open.begin()->second.empty()) return absent("unknown: there are no device nodes of GPUs");

  std::size_t least_open = SIZE_MAX;
  std::size_t most = 0;
  auto hidden = step.where([&](auto& report) {
    const auto there = std::max<std::size_t>(open[step.layout.place(report.rank).node].size(), report.gpus_on_node);
    most = std::max(most, there);
    if (report.open_gpus.size() < there) least_open = std::min(least_open, report.open_gpus.size());
    return report.open_gpus.size() < there;
  });
  if (!hidden.empty()) {
    return warning(cat({"Slurm hides all but ", std::to_string(least_open), " of the ", std::to_string(most),
                        " GPUs of a node from each task: no NVLink and no CUDA IPC between them"}),
                   std::move(hidden), cat({"srun ", step.first().gpu_hint}));
  }
  return ok(most == 1 ? "one GPU on each node" : "every rank can open all GPUs of the step on its node");
}

}  // namespace bootstrap
