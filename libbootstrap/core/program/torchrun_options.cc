// Whether a torchrun leaves it to others how many nodes there are and where they meet.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/torchrun_options.h"

#include <algorithm>
#include <array>

#include "core/step/export_record.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

struct Option {
  std::string_view name;  // with "-" between words; torchrun takes "_" as well
  bool takes_value;
  bool decides;
};

// torch/distributed/run.py of PyTorch 1.13 to 2.15, and launch.py.
constexpr auto kOptions = std::to_array<Option>({
    {"nnodes", true, true},
    {"nproc-per-node", true, false},
    {"rdzv-backend", true, true},
    {"rdzv-endpoint", true, true},
    {"rdzv-id", true, true},
    {"rdzv-conf", true, true},
    {"standalone", false, true},
    {"max-restarts", true, false},
    {"monitor-interval", true, false},
    {"start-method", true, false},
    {"role", true, false},
    {"module", false, false},
    {"no-python", false, false},
    {"run-path", false, false},
    {"log-dir", true, false},
    {"redirects", true, false},
    {"tee", true, false},
    {"local-ranks-filter", true, false},
    {"duplicate-stdout-filters", true, false},
    {"duplicate-stderr-filters", true, false},
    {"node-rank", true, true},
    {"master-addr", true, true},
    {"master-port", true, true},
    {"local-addr", true, true},
    {"logs-specs", true, false},
    {"numa-binding", true, false},
    {"signals-to-handle", true, false},
    {"virtual-local-rank", false, false},
    {"event-log-handler", true, false},
    {"use-env", false, false},
    {"use_env", false, false},
    {"help", false, false},
});

constexpr auto kVariables = std::to_array<std::string_view>(
    {"PET_NNODES", "PET_STANDALONE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_CONF",
     "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_LOCAL_ADDR"});

bool says_nothing_new(std::string_view name, std::string_view value, std::uint32_t nodes) {
  return name == "nnodes" && parse_unsigned(value, UINT32_MAX) == nodes;
}

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string find_variable(const Environment& environment, std::uint32_t nodes) {
  const ExportRecord ours(environment);
  for (const auto name : kVariables) {
    const auto value = environment.get(name);
    if (!value || ours.is_ours(name, *value)) continue;
    if (name == "PET_NNODES" && says_nothing_new("nnodes", *value, nodes)) continue;
    return std::string(name);
  }
  return {};
}

}  // namespace

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
    const auto given = with_dashes(word.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    // argparse takes the beginning of an option for all of it. Where several begin so, it refuses; we do not care
    // which.
    const auto fits = [&](const Option& option) { return option.name.starts_with(given); };
    const auto exact = std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& o) { return o.name == given; });
    const auto found = exact != kOptions.end() ? exact : std::find_if(kOptions.begin(), kOptions.end(), fits);
    if (found == kOptions.end()) return std::string(word);
    const bool decides = exact != kOptions.end() ? exact->decides
                                                 : std::any_of(kOptions.begin(), kOptions.end(),
                                                               [&](const Option& o) { return fits(o) && o.decides; });
    std::string_view value;
    if (equals != std::string_view::npos) value = word.substr(equals + 1);
    if (equals == std::string_view::npos && found->takes_value && i + 1 < arguments.size()) value = arguments[++i];
    if (decides && !says_nothing_new(found->name, value, nodes)) return std::string(word.substr(0, equals));
  }
  return find_variable(environment, nodes);
}

}  // namespace bootstrap
