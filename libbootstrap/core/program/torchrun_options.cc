// Whether a torchrun leaves it to others how many nodes there are and where they meet.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program_names.h"

#include <algorithm>
#include <vector>

#include "core/step/planned_variables.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// torch/distributed/run.py of PyTorch 1.13 to 2.15, and launch.py; with "-" between words: torchrun takes "_" as well.
constexpr std::string_view kWithValue =
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method "
    "role "
    "log-dir redirects tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr "
    "master-port local-addr logs-specs numa-binding signals-to-handle event-log-handler";
constexpr std::string_view kTorchrunFlags = "standalone module no-python run-path virtual-local-rank use-env help";
constexpr std::string_view kDeciding =
    "nnodes rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone node-rank master-addr master-port local-addr";

bool says_nothing_new(std::string_view name, std::string_view value, std::uint32_t nodes) {
  return name == "nnodes" && parse_unsigned(value, UINT32_MAX) == nodes;
}

// argparse takes the beginning of an option for all of it. Where several begin so, it refuses; we do not care which.
std::vector<std::string_view> options_like(std::string_view given) {
  std::vector<std::string_view> found;
  for (const auto list : {kWithValue, kTorchrunFlags}) {
    for (const auto name : split(list, ' ')) {
      if (name == given) return {name};
      if (name.starts_with(given)) found.push_back(name);
    }
  }
  return found;
}

// PET_RDZV_ID for --rdzv-id.
std::string torchrun_variable(std::string_view option) {
  auto name = cat({"PET_", replaced(option, "-", "_")});
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return name;
}

std::string find_variable(const Environment& environment, std::uint32_t nodes) {
  const ExportRecord ours(environment);
  for (const auto option : split(kDeciding, ' ')) {
    auto name = torchrun_variable(option);
    const auto value = environment.get(name);
    if (value && !ours.is_ours(name, *value) && !says_nothing_new(option, *value, nodes)) return name;
  }
  return {};
}

}  // namespace

bool is_torchrun_module(std::string_view module) noexcept {
  return module == "torch.distributed.run" || module == "torch.distributed.launch" || module.starts_with("torchrun_");
}

bool is_torchrun_script(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1) == "torchrun" || path.ends_with("torch/distributed/run.py") ||
         path.ends_with("torch/distributed/launch.py");
}

std::string find_torchrun_decision(std::span<const std::string> arguments, const Environment& environment,
                                   std::uint32_t nodes) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (!word.starts_with("-") || word == "--") break;  // the training script
    if (!word.starts_with("--")) {
      const bool is_flag = word == "-m" || word == "-h";
      const bool has_value = word.starts_with("-r") || word.starts_with("-t");
      if (!is_flag && !has_value) return std::string(word);
      if (has_value && word.size() == 2) ++i;
      continue;
    }
    const auto equals = word.find('=');
    const auto given = replaced(word.substr(2, equals == std::string_view::npos ? equals : equals - 2), "_", "-");
    const auto options = options_like(given);
    if (options.empty()) return std::string(word);
    const bool decides =
        std::any_of(options.begin(), options.end(), [](auto name) { return has_word(kDeciding, name); });
    const bool takes_value = has_word(kWithValue, options.front());
    std::string_view value;
    if (equals != std::string_view::npos) value = word.substr(equals + 1);
    if (equals == std::string_view::npos && takes_value && i + 1 < arguments.size()) value = arguments[++i];
    if (decides && !says_nothing_new(options.front(), value, nodes)) return std::string(word.substr(0, equals));
  }
  return find_variable(environment, nodes);
}

}  // namespace bootstrap
