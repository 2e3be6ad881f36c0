// How many GPUs each node of a step has, from the request to Slurm.
// SPDX-License-Identifier: Apache-2.0
#include "core/activation/activation_rules.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMostGpus = 65536;

// "gres:gpu:a100:2", "gres/gpu:2" and "gres/gpu=2" without the "gres" in front.
std::string_view resource_of(std::string_view item) {
  if (item.starts_with("gres:") || item.starts_with("gres/")) item.remove_prefix(5);
  return item;
}

bool is_of(std::string_view item, std::string_view resource) {
  const auto rest = resource_of(item);
  return rest.starts_with(resource) && (rest.size() == resource.size() || rest[resource.size()] == ':' ||
                                        rest[resource.size()] == '=' || rest[resource.size()] == '(');
}

bool list_has(std::string_view list, std::string_view resource) {
  const auto items = split(list, ',');
  return std::any_of(items.begin(), items.end(), [&](std::string_view item) { return is_of(item, resource); });
}

// Slurm uses NVML's names for kinds of MIG instances: "1g.5gb", "a100_3g.20gb".
bool is_mig_kind(std::string_view kind) {
  for (std::size_t at = kind.find("g."); at != std::string_view::npos; at = kind.find("g.", at + 1)) {
    const auto rest = kind.substr(at + 2);
    const auto digits = rest.find_first_not_of("0123456789");
    if (at > 0 && is_digit(kind[at - 1]) && digits != 0 && digits != std::string_view::npos &&
        rest.substr(digits).starts_with("gb")) {
      return true;
    }
  }
  return false;
}

using Counts = std::map<std::string, std::uint64_t>;  // of each kind; "" stands for GPUs of any kind

// Returns nullopt if a part of the list cannot be read. srun appends its own --gres to the job's:
// "gres/gpu:2,gres/gpu:2" is one request, and the last one counts.
std::optional<Counts> count_gpus(std::string_view list) {
  Counts counts;
  for (const auto item : split(list, ',')) {
    if (!is_of(item, "gpu")) continue;
    // "gpu", "gpu:2", "gpu:a100" or "gpu:a100:2"; "gpu=2" and "gpu:a100=2" since 24.11.
    const auto text = replaced(resource_of(item), "=", ":");
    const auto words = split(text, ':');
    const auto number = parse_unsigned(words.back(), kMostGpus);
    const bool needs_number = words.size() > 2 || item.find('=') != std::string_view::npos;
    if (words.size() > 3 || (needs_number && !number)) return std::nullopt;
    const bool has_kind = words.size() > 2 || (words.size() == 2 && !number);
    counts[std::string(has_kind ? words[1] : "")] = number.value_or(1);
  }
  return counts;
}

// Slurm separates the bindings of several resources by "+": "gres/gpu:single:1+gres/nic:none".
bool binds_gpus(std::string_view binds) {
  for (auto bind : split(binds, '+')) {
    bind = resource_of(bind);
    if (!bind.starts_with("gpu:")) continue;
    bind.remove_prefix(4);
    if (bind.starts_with("verbose,")) bind.remove_prefix(8);
    if (bind != "none" && bind != "verbose" && !bind.empty()) return true;
  }
  return false;
}

std::uint64_t sum_of(const std::optional<Counts>& counts) {
  std::uint64_t sum = 0;
  for (const auto& [kind, count] : counts.value_or(Counts())) sum += count;
  return sum;
}

// "gpu:2(IDX:0,3)" without the indexes.
std::string without_indexes(std::string_view detail) {
  std::string text;
  bool is_index = false;
  for (const char c : detail) {
    is_index = is_index || c == '(';
    if (!is_index) text += c;
    if (c == ')') is_index = false;
  }
  return text;
}

// The GPUs of each node in a step that has all nodes and GPUs of its job.
Result<std::string> share_of_job(const TresRequest& request, std::uint32_t nodes) {
  constexpr auto kUnknown = "--gpus=N does not say how many GPUs each node gets";
  if (request.job_nodes.size() != nodes) return fail(ErrorCode::kMissing, kUnknown);
  auto share = without_indexes(request.job_nodes.front());
  const auto gpus = sum_of(count_gpus(share));
  std::uint64_t all = 0;
  bool is_even = true;
  for (const auto& node : request.job_nodes) {
    const auto list = without_indexes(node);
    const auto count = sum_of(count_gpus(list));
    is_even = is_even && count == gpus;
    all += count;
  }
  if (all == 0 || all != sum_of(count_gpus(request.per_step))) return fail(ErrorCode::kMissing, kUnknown);
  if (is_even) return share;
  return fail(ErrorCode::kMissing, "Slurm gave the nodes different numbers of the GPUs of --gpus=N");
}

constexpr std::string_view kPerNode = "use --gpus-per-node=N instead, for a GPU for each task, or --bootstrap=on";

}  // namespace

bool needs_job_nodes(const TresRequest& request, std::uint32_t nodes) {
  return nodes != 1 && list_has(request.per_step, "gpu") && !list_has(request.per_node, "gpu") &&
         !list_has(request.per_socket, "gpu") && !list_has(request.per_task, "gpu");
}

GpuRequest read_gpu_request(const TresRequest& request, std::uint32_t nodes) {
  GpuRequest found;
  const auto without_number = [&](std::string_view reason, std::string_view hint = {}) {
    found.reason = reason;
    found.hint = hint;
    return found;
  };
  const auto lists = {std::string_view(request.per_node), std::string_view(request.per_step),
                      std::string_view(request.per_socket), std::string_view(request.per_task)};
  const auto any = [&](std::string_view resource) {
    return std::any_of(lists.begin(), lists.end(), [&](std::string_view list) { return list_has(list, resource); });
  };
  const bool has_shares = any("shard") || any("mps");
  found.has_gpus = has_shares || any("gpu");
  if (!found.has_gpus) return without_number("the step has no GPUs");
  if (has_shares) return without_number("the step has shares of GPUs (shard, MPS)");
  if (list_has(request.per_task, "gpu"))
    return without_number("the step has GPUs per task (--gpus-per-task)", kPerNode);
  if (list_has(request.per_socket, "gpu"))
    return without_number("the step has GPUs per socket (--gpus-per-socket)", kPerNode);
  if (binds_gpus(request.bind))
    return without_number("Slurm binds each task to its own GPUs (--gpu-bind, --ntasks-per-gpu)", kPerNode);

  auto list = list_has(request.per_node, "gpu") ? request.per_node : request.per_step;
  if (needs_job_nodes(request, nodes)) {
    auto share = share_of_job(request, nodes);
    if (!share) return without_number(share.error().message, kPerNode);
    list = std::move(*share);
  }
  const auto counts = count_gpus(list);
  if (!counts) return without_number("the step's request for GPUs has an unknown form");
  if (counts->count("") != 0 && counts->size() > 1) {
    return without_number("the step asks for GPUs of one type and for GPUs of any type");
  }
  for (const auto& [kind, count] : *counts) {
    if (is_mig_kind(kind)) return without_number("the step has MIG instances");
  }
  const auto sum = sum_of(counts);
  if (sum == 0) {
    found.has_gpus = false;  // --gres=gpu:0
    return without_number("the step has no GPUs");
  }
  found.per_node = static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, kMostGpus));
  return found;
}

}  // namespace bootstrap
