// What the options of torchrun and of accelerate leave open: how many nodes there are, and where they meet.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/torchrun_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/hardware/network.h"
#include "core/program/program_names.h"
#include "core/step/planned_variables.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// torch/distributed/run.py of PyTorch 1.13 to 2.15, and launch.py; with "-" between words: torchrun takes "_" as well.
constexpr std::string_view kWithValue =
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method "
    "role log-dir redirects tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank "
    "master-addr master-port local-addr logs-specs numa-binding signals-to-handle event-log-handler";
constexpr std::string_view kTorchrunFlags = "standalone module no-python run-path virtual-local-rank use-env help";
constexpr std::string_view kDeciding =
    "nnodes rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone node-rank master-addr master-port local-addr";

// accelerate/commands/launch.py of Accelerate 0.29 to 1.15: its options, and what it hands to torchrun.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOfAccelerate{
    {{"num-machines", "nnodes"},
     {"machine-rank", "node-rank"},
     {"main-process-ip", "master-addr"},
     {"rdzv-backend", "rdzv-backend"}}};

struct Given {
  std::string name;   // of torchrun: "node-rank"
  std::string value;  // "0"
  std::string text;   // as the user wrote it: "--node_rank 0", "PET_NODE_RANK=0"
  bool is_variable = false;
};

bool says_nothing_new(const Given& given, std::uint32_t nodes) {
  return given.name == "nnodes" && parse_unsigned(given.value, UINT32_MAX) == nodes;
}

// argparse also accepts the beginning of an option. If several options begin so, it refuses; any of them will do here.
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

void add_variables(std::vector<Given>& given, const Environment& environment) {
  const ExportRecord ours(environment);
  for (const auto option : split(kDeciding, ' ')) {
    auto name = cat({"PET_", replaced(option, "-", "_")});  // PET_RDZV_ID for --rdzv-id
    for (auto& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    const auto value = environment.get(name);
    const bool is_overridden =
        std::any_of(given.begin(), given.end(), [&](const Given& other) { return other.name == option; });
    if (!value || ours.is_ours(name, *value) || is_overridden) continue;
    given.push_back({std::string(option), std::string(*value), cat({name, "=", *value}), true});
  }
}

// "--node_rank=0" or "--node_rank 0", whose value is the next word. Moves `i` to the option's last word.
Given read_option(std::span<const std::string> arguments, std::size_t& i, bool takes_value) {
  const std::string_view word = arguments[i];
  const auto equals = word.find('=');
  Given given;
  given.name = replaced(word.substr(2, equals == std::string_view::npos ? equals : equals - 2), "_", "-");
  if (equals != std::string_view::npos) given.value = word.substr(equals + 1);
  given.text = word;
  if (equals == std::string_view::npos && takes_value && i + 1 < arguments.size()) {
    given.value = arguments[++i];
    given.text = cat({word, " ", given.value});
  }
  return given;
}

// Up to the training script. `unknown`: an option that torchrun does not have. What follows it cannot be read.
std::vector<Given> read_options(std::span<const std::string> arguments, std::string& unknown) {
  std::vector<Given> found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (!word.starts_with("-") || word == "--") break;
    if (!word.starts_with("--")) {
      const bool has_value = word.starts_with("-r") || word.starts_with("-t");
      if (word != "-m" && word != "-h" && !has_value) {
        unknown = word;
        break;
      }
      if (has_value && word.size() == 2) ++i;
      continue;
    }
    auto name = word.substr(2, std::min(word.find('='), word.size()) - 2);
    const auto options = options_like(replaced(name, "_", "-"));
    if (options.empty()) {
      unknown = word;
      break;
    }
    auto given = read_option(arguments, i, has_word(kWithValue, options.front()));
    const auto* const deciding = std::find_if(options.data(), options.data() + options.size(),
                                              [](auto option) { return has_word(kDeciding, option); });
    if (deciding == options.data() + options.size()) continue;
    given.name = *deciding;
    found.push_back(std::move(given));
  }
  return found;
}

// "localhost:29400", "[::1]:29400", "::1"
std::string_view host_of(std::string_view endpoint) {
  if (endpoint.starts_with("[")) return endpoint.substr(1, std::min(endpoint.find(']'), endpoint.size()) - 1);
  const auto colon = endpoint.find(':');
  return endpoint.find(':', colon + 1) == std::string_view::npos ? endpoint.substr(0, colon) : endpoint;
}

// torchrun waits for all of its nodes. It waits for ever if two nodes have the same rank, or if each node looks for the
// others on itself. Only the static rendezvous uses the rank (torch/distributed/run.py: config_from_args).
std::string find_conflict(const std::vector<Given>& given, const NodesOfStep& nodes) {
  const auto value_of = [&](std::string_view name) {
    const auto last = std::find_if(given.rbegin(), given.rend(), [&](const Given& one) { return one.name == name; });
    return last == given.rend() ? std::string_view() : std::string_view(last->value);
  };
  const auto least = value_of("nnodes").substr(0, value_of("nnodes").find(':'));  // "2:4"
  const bool has_others = parse_unsigned(least).value_or(1) > 1;
  const bool is_standalone =
      std::any_of(given.begin(), given.end(), [](const Given& one) { return one.name == "standalone"; });
  if (nodes.count < 2 || !has_others || is_standalone) return {};
  const bool is_static = value_of("rdzv-backend").empty() || value_of("rdzv-backend") == "static";
  for (const auto& one : given) {
    const bool is_place = one.name == "rdzv-endpoint" || (is_static && one.name == "master-addr");
    const bool is_rank = is_static && one.name == "node-rank" && parse_unsigned(one.value);
    const auto host = host_of(one.value);
    if (is_rank || (is_place && is_loopback_name(host))) {
      return cat({quote(one.text, 60), " cannot be right on several nodes"});
    }
    if (is_place && std::find(nodes.others.begin(), nodes.others.end(), host) != nodes.others.end()) {
      return cat({quote(one.text, 60), " is no node of the step"});
    }
  }
  return {};
}

std::string remedy_of(const std::vector<Given>& given, std::uint32_t nodes) {
  std::string options;
  std::string variables;
  for (const auto& one : given) {
    if (says_nothing_new(one, nodes)) continue;
    if (one.is_variable) variables += cat({" ", one.text.substr(0, one.text.find('='))});
    if (!one.is_variable) options += cat({" ", printable(one.text)});
  }
  return cat({options.empty() ? "" : "remove", options, options.empty() || variables.empty() ? "" : " and ",
              variables.empty() ? "" : "unset", variables});
}

}  // namespace

bool is_torchrun_module(std::string_view module) noexcept {
  return module == "torch.distributed.run" || module == "torch.distributed.launch" || module.starts_with("torchrun_");
}

bool is_torchrun_script(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1) == "torchrun" || path.ends_with("torch/distributed/run.py") ||
         path.ends_with("torch/distributed/launch.py");
}

NodeOptions read_torchrun_options(std::span<const std::string> arguments, const Environment& environment,
                                  const NodesOfStep& nodes) {
  NodeOptions options;
  auto given = read_options(arguments, options.first);
  add_variables(given, environment);
  const auto decides =
      std::find_if(given.begin(), given.end(), [&](const Given& one) { return !says_nothing_new(one, nodes.count); });
  if (decides == given.end()) return options;
  if (options.first.empty() || !decides->is_variable) {
    options.first = decides->text.substr(0, decides->text.find_first_of("= "));
  }
  options.remedy = remedy_of(given, nodes.count);
  options.conflict = find_conflict(given, nodes);
  return options;
}

NodeOptions read_accelerate_options(std::span<const std::string> arguments, const NodesOfStep& nodes) {
  std::vector<Given> given;
  for (std::size_t i = 0; i < arguments.size() && !is_python_script(arguments[i]); ++i) {
    if (!arguments[i].starts_with("--")) continue;
    auto next = i;
    auto option = read_option(arguments, next, true);
    const auto* const row = std::find_if(kOfAccelerate.begin(), kOfAccelerate.end(),
                                         [&](const auto& one) { return one.first == option.name; });
    if (row == kOfAccelerate.end()) continue;
    option.name = row->second;
    given.push_back(std::move(option));
    i = next;
  }
  return {.first = {}, .remedy = {}, .conflict = find_conflict(given, nodes)};
}

}  // namespace bootstrap
