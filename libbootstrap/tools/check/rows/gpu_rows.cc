// The rows about GPUs and what they are used through: NCCL, the driver, the device nodes, and the ways between them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap::check {
namespace {

constexpr std::string_view kOneEach = "a GPU for each rank: srun --gres=gpu:N with N tasks per node";

std::uint32_t node_of(const Survey& survey, const CheckReport& report) {
  return survey.layout().place(report.rank).node;
}

bool has_nvidia(const Survey& survey) {
  return survey.any([](const CheckReport& report) { return report.has_gpus && report.is_nvidia; });
}

bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// A library that some ranks have: what is to be said of the others.
CheckRow partly(std::string_view name, const std::vector<Variant>& versions, std::vector<Rank> without,
                bool is_needed) {
  auto text = cat({versions.front().value, " on some ranks, and not there on ", count_of(without.size(), "rank")});
  return is_needed ? failed(name, std::move(text), std::move(without))
                   : warning(name, std::move(text), std::move(without));
}

bool is_mig(const CheckReport& report) {
  return std::any_of(report.gpu_list.begin(), report.gpu_list.end(),
                     [](const std::string& name) { return name.starts_with("MIG-"); });
}

// Ranks that share a GPU of their node, and the first such GPU.
std::vector<Rank> sharing(const Survey& survey, std::string& example) {
  std::map<std::pair<std::uint32_t, std::string_view>, std::vector<Rank>> users;
  for (const auto* const report : survey.reports()) {
    if (!report->own_gpu.empty()) users[{node_of(survey, *report), report->own_gpu}].push_back(report->rank);
  }
  std::vector<Rank> ranks;
  for (const auto& [gpu, of_gpu] : users) {
    if (of_gpu.size() < 2) continue;
    if (ranks.empty()) {
      example =
          cat({count_of(of_gpu.size(), "rank"), " of ", survey.layout().hosts()[gpu.first], " are on ", gpu.second});
    }
    ranks.insert(ranks.end(), of_gpu.begin(), of_gpu.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

CheckRow gpus_in_order(const Survey& survey) {
  std::set<std::pair<std::uint32_t, std::string_view>> all;
  for (const auto* const report : survey.reports()) {
    for (const auto& name : report->gpu_list) all.emplace(node_of(survey, *report), name);
  }
  const auto nodes = survey.layout().node_count();
  const auto where = nodes == 1 ? std::string() : cat({" on ", count_of(nodes, "node")});
  const auto counted = cat({count_of(all.size(), "GPU"), where});
  const bool is_untried = survey.any([](const CheckReport& report) { return report.open_gpus.empty(); });
  return ok("GPUs", cat({counted, is_untried ? "; each rank has its own" : "; each rank can open its own"}));
}

}  // namespace

CheckRow nccl_row(const Survey& survey) {
  const auto troubles = survey.variants(&CheckReport::nccl_trouble);
  if (!troubles.empty()) {
    return failed("NCCL", troubles.front().value,
                  survey.where([](const CheckReport& report) { return !report.nccl_trouble.empty(); }));
  }
  const auto versions = survey.variants(&CheckReport::nccl_version);
  if (versions.empty()) {
    return absent("NCCL", cat({"no libnccl.so.2 that the loader finds",
                               has_nvidia(survey) ? "; PyTorch's packages bring their own" : ""}));
  }
  if (versions.size() > 1) {
    return failed("NCCL", cat({describe_variants(versions), "; NCCL refuses to connect them"}), odd_ranks(versions),
                  "one version on all nodes; SLURM_BOOTSTRAP_NCCL names the file to load");
  }
  auto without = survey.where([](const CheckReport& report) { return report.nccl_version.empty(); });
  if (!without.empty()) return partly("NCCL", versions, std::move(without), has_nvidia(survey));
  const auto paths = survey.variants(&CheckReport::nccl_path);
  auto text = versions.front().value;
  if (paths.size() == 1) text += cat({" (", paths.front().value, ")"});
  if (paths.size() > 1) text += cat({" from ", std::to_string(paths.size()), " different places"});
  return ok("NCCL", std::move(text));
}

CheckRow driver_row(const Survey& survey) {
  const auto drivers = survey.variants([](const CheckReport& report) {
    if (report.cuda_version.empty()) return std::string();
    return report.cuda_module.empty() ? report.cuda_version
                                      : cat({report.cuda_version, " (driver ", report.cuda_module, ")"});
  });
  const bool is_needed = has_nvidia(survey);
  if (drivers.empty()) {
    if (!is_needed) return absent("CUDA", "no driver, and no GPU in this step that needs one");
    return warning("CUDA", "the step has GPUs, and there is no libcuda.so.1 to use them with", {},
                   "the driver of the nodes; in a container its option for GPUs (--nv, --gpus)");
  }
  if (drivers.size() > 1) {
    return warning("CUDA", describe_variants(drivers), odd_ranks(drivers),
                   "NCCL may choose different ways on different drivers; one on all nodes is safer");
  }
  auto without = survey.where([](const CheckReport& report) { return report.cuda_version.empty(); });
  if (!without.empty()) return partly("CUDA", drivers, std::move(without), is_needed);
  return ok("CUDA", drivers.front().value);
}

CheckRow gpu_row(const Survey& survey) {
  const auto with = survey.where(&CheckReport::has_gpus);
  if (with.empty()) return absent("GPUs", "the step was given none");
  if (with.size() < survey.reports().size()) {
    return failed("GPUs", "some ranks were given GPUs and these were not",
                  survey.where(std::not_fn(&CheckReport::has_gpus)));
  }
  const auto lost = survey.where([](const CheckReport& report) { return has(report.gpu_list, "?"); });
  if (!lost.empty()) {
    return failed("GPUs", "the list of GPUs names one that is not there or cannot be opened", lost,
                  "a list made for other nodes, or changed since Slurm set it; see slurm-bootstrap explain --gpus");
  }
  const auto closed = survey.where([](const CheckReport& report) { return has(report.closed_gpus, report.own_gpu); });
  if (!closed.empty()) {
    return failed("GPUs", "these ranks cannot open their own GPU", closed, cat({"srun ", survey.first().gpu_cure}));
  }
  std::string example;
  const auto shared = sharing(survey, example);
  const bool is_meant = survey.first().may_share_gpus;
  if (!shared.empty() && is_meant) {
    return warning("GPUs", cat({example, ", as was asked for; NCCL works with one rank on a GPU only"}), shared);
  }
  if (!shared.empty()) {
    return failed("GPUs", cat({example, "; NCCL works with one rank on a GPU only"}), shared, std::string(kOneEach));
  }
  if (survey.first().leaves_gpus) return ok("GPUs", "left to the program (--bootstrap-gpu=off)");
  const auto none = survey.where([](const CheckReport& report) { return report.own_gpu.empty(); });
  if (!none.empty()) {
    return failed("GPUs", "fewer GPUs than ranks on a node: none is left for these", none, std::string(kOneEach));
  }
  return gpus_in_order(survey);
}

CheckRow peer_row(const Survey& survey) {
  if (!survey.any(&CheckReport::has_gpus)) return absent("GPU peers", "no GPUs, no peers");
  if (survey.any(is_mig)) return absent("GPU peers", "MIG instances are no peers of each other");
  std::map<std::uint32_t, std::set<std::string_view>> open;  // by node: what any of its ranks can open
  for (const auto* const report : survey.reports()) {
    open[node_of(survey, *report)].insert(report->open_gpus.begin(), report->open_gpus.end());
  }
  if (open.begin()->second.empty())
    return absent("GPU peers", "not known: there are no device nodes that could be tried");

  std::size_t least_open = SIZE_MAX;
  std::size_t most = 0;
  auto hidden = survey.where([&](const CheckReport& report) {
    const auto there = std::max<std::size_t>(open[node_of(survey, report)].size(), report.gpus_on_node);
    most = std::max(most, there);
    if (report.open_gpus.size() < there) least_open = std::min(least_open, report.open_gpus.size());
    return report.open_gpus.size() < there;
  });
  if (!hidden.empty()) {
    return warning("GPU peers",
                   cat({"Slurm hides all but ", std::to_string(least_open), " of the ", std::to_string(most),
                        " GPUs of a node from a task: no NVLink, no CUDA IPC between them"}),
                   std::move(hidden), cat({"srun ", survey.first().gpu_cure}));
  }
  return ok("GPU peers",
            most == 1 ? "one GPU on a node: no peers there" : "every rank can open all GPUs of the step on its node");
}

}  // namespace bootstrap::check
