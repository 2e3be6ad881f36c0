// The table of settings: one row for each, with the values that it takes.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint32_t kAllFrameworks = (1U << kFrameworkCount) - 1;
constexpr std::array<std::string_view, 3> kModes{"auto", "on", "off"};
constexpr std::array<std::string_view, 4> kGpuModes{"index", "first", "narrow", "off"};
constexpr std::array<std::string_view, 6> kWhens{"world", "observe", "gpu", "always", "asked", "never"};
constexpr std::array<std::string_view, 2> kSwitch{"off", "on"};
constexpr std::array<std::string_view, 2> kLog{"off", "decisions"};
constexpr std::array<std::string_view, 2> kCpu{"off", "near"};
constexpr std::string_view kMode = "mode";
constexpr std::uint32_t kMaxSeconds = 86400;

std::vector<std::string_view> names_of(std::uint32_t mask) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kFrameworkNames.size(); ++i) {
    if (((mask >> i) & 1U) != 0) names.push_back(kFrameworkNames[i]);
  }
  return names;
}

tl::unexpected<Error> refuse_value(std::string reason) { return fail(ErrorCode::kInvalid, std::move(reason)); }

// Each function below reads the value of a setting. Its error says which values the setting takes.

template <class Value, const auto& kWords>
Result<Value> read_word(std::string_view text) {
  const auto found = std::find(kWords.begin(), kWords.end(), text);
  if (found != kWords.end()) return static_cast<Value>(found - kWords.begin());
  std::string takes = "use ";
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    takes += cat({i == 0 ? "" : i + 1 == kWords.size() ? " or " : ", ", kWords[i]});
  }
  return refuse_value(std::move(takes));
}

Result<bool> read_debug(std::string_view text) { return text != "0"; }
Result<bool> read_timing(std::string_view text) { return text == "1"; }

constexpr std::string_view kSeconds = "a number of seconds";
constexpr std::string_view kPorts = "a number of ports";

// From 1 to kMost; "off" is 0 if it is allowed.
template <std::uint32_t kMost, const std::string_view& kWhat, bool kMayBeOff>
Result<std::uint32_t> read_number(std::string_view text) {
  if (kMayBeOff && text == "off") return 0U;
  const auto number = parse_unsigned<std::uint32_t>(text, kMost);
  if (number && *number != 0) return *number;
  return refuse_value(cat({"use ", kMayBeOff ? "off or " : "", kWhat, " from 1 to ", std::to_string(kMost)}));
}

// A list with commas; the empty text is the empty list.
bool is_list_of(bool (*is_name)(std::string_view), std::string_view text) {
  const auto names = split(text, ',');
  return text.empty() || std::all_of(names.begin(), names.end(), is_name);
}

bool has_no_space(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c == 0x7f; });
}

bool is_partition(std::string_view name) { return !name.empty() && has_no_space(name); }

Result<std::string> read_partitions(std::string_view text) {
  if (is_list_of(is_partition, text)) return std::string(text);
  return refuse_value("use names of partitions, separated by commas");
}

// True for the name of a file without its folder, or of a module.
bool is_program_name(std::string_view name) {
  return !name.empty() && !name.starts_with('-') && std::all_of(name.begin(), name.end(), [](char c) {
    return is_alphanumeric(c) || std::string_view("._+-").find(c) != std::string_view::npos;
  });
}

Result<std::string> read_programs(std::string_view text) {
  if (is_list_of(is_program_name, text)) return std::string(text);
  return refuse_value("use names of programs without folders, separated by commas");
}

Result<std::uint16_t> read_port(std::string_view text) {
  if (text == "auto") return std::uint16_t{0};
  const auto port = parse_unsigned<std::uint16_t>(text);
  if (!port || *port < kMinPort) return refuse_value("use auto or a port from 1024 to 65535");
  return *port;
}

Result<PortRange> read_port_range(std::string_view text) {
  const auto ends = split(text, '-');
  const auto low = parse_unsigned<std::uint16_t>(ends[0]);
  const auto high = parse_unsigned<std::uint16_t>(ends.back());
  if (ends.size() != 2 || !low || !high || *low < kMinPort || *high < *low) {
    return refuse_value("use two ports from 1024 to 65535 in ascending order, such as 20000-29999");
  }
  return PortRange{*low, *high};
}

bool is_host_character(char character) {
  return is_alphanumeric(character) || character == '-' || character == '.' || character == '_' || character == ':';
}

Result<std::string> read_address(std::string_view text) {
  if (is_host_name(replaced(replaced(text, "%h", "h"), "%a", "a")) && text.size() <= 255) return std::string(text);
  return refuse_value(
      "use a host name or address, or a template such as %h-ib0, where %h is the host of rank 0, and %a the address by "
      "which Slurm reaches it");
}

bool is_path_or_empty(std::string_view text) { return text.empty() || (text.starts_with('/') && has_no_space(text)); }

// Space and colon separate the entries of LD_PRELOAD and cannot be quoted there.
Result<std::string> read_preload_library(std::string_view text) {
  if (is_path_or_empty(text) && text.find(':') == std::string_view::npos) return std::string(text);
  return refuse_value("use the absolute path of libbootstrap.so on the nodes, without spaces and colons");
}

Result<std::string> read_shared_dir(std::string_view text) {
  if (is_path_or_empty(text)) return std::string(text);
  return refuse_value("use the absolute path of a folder that all nodes share; %u stands for the user");
}

Result<std::string> read_library(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' '; })) return std::string(text);
  return refuse_value("use the path of a library");
}

Result<FrameworkChoice> read_frameworks(std::string_view text) {
  const auto words = split(text, ',');
  if (std::find(words.begin(), words.end(), "horovod") != words.end()) {
    return refuse_value("start Horovod programs with: srun slurm-bootstrap run --horovod -- PROGRAM");
  }
  const auto set = parse_frameworks(text);
  if (!set) return refuse_value(cat({"use auto, all, none or a list of ", join(names_of(kAllFrameworks), ", ")}));
  return *set;
}

Result<InterfaceChoice> read_interface(std::string_view text) {
  auto choice = parse_interface(text);
  if (choice) return std::move(*choice);
  return refuse_value("use gloo, auto, off, the name of a network interface or a network such as 10.0.0.0/8");
}

// Each function below writes a value in the form in which it is read.

template <class Value, const auto& kWords>
std::string write_word(Value value) {
  return std::string(kWords[static_cast<std::size_t>(value)]);
}
std::string write_text(const std::string& value) { return value; }
std::string write_port(std::uint16_t port) { return port == 0 ? "auto" : std::to_string(port); }
std::string write_number(std::uint32_t number) { return number == 0 ? "off" : std::to_string(number); }
std::string write_interface(const InterfaceChoice& choice) { return choice.text; }
std::string write_port_range(const PortRange& range) {
  return cat({std::to_string(range.low), "-", std::to_string(range.high)});
}

template <auto kMember, auto kRead, auto kWrite>
constexpr SettingSpec row(const SettingNames& names, AppliesTo applies_to = AppliesTo::kStep) {
  return {names,
          [](Settings& settings, std::string_view text, Source source) -> Status {
            auto value = kRead(text);
            if (!value) return fail(std::move(value).error());
            auto& setting = settings.*kMember;
            if (source >= setting.source) setting = {std::move(*value), source};
            return {};
          },
          [](const Settings& settings) { return kWrite((settings.*kMember).value); },
          [](const Settings& settings) { return (settings.*kMember).source; }, applies_to};
}

// One option sets two settings: the mode, and whether to explain. "explain" alone does not change the mode, so
// SLURM_BOOTSTRAP=on stays on under --bootstrap=explain.
Status apply_mode(Settings& settings, std::string_view value, Source source) {
  auto mode = std::optional<Mode>();
  bool explain = false;
  for (const auto word : split(value, ',')) {
    const auto found = read_word<Mode, kModes>(word);
    if (word == "explain" && !explain) {
      explain = true;
    } else if (found && !mode) {
      mode = *found;
    } else {
      return refuse_value("use on, off, auto or explain (\"on,explain\" for both)");
    }
  }
  if (mode && source >= settings.mode.source) settings.mode = {*mode, source};
  if (source >= settings.explain.source) settings.explain = {explain, source};
  return {};
}

constexpr std::array kSpecs{
    SettingSpec{{kMode, "SLURM_BOOTSTRAP", "bootstrap", "on|off|auto|explain", "",
                 "set the variables of this step, or do not; auto: as the site's when= says; explain: also print a "
                 "table of them"},
                apply_mode,
                [](const Settings& settings) { return write_word<Mode, kModes>(settings.mode.value); },
                [](const Settings& settings) { return settings.mode.source; },
                AppliesTo::kStep},
    row<&Settings::when, read_word<When, kWhens>, write_word<When, kWhens>>(
        {"when", "", "", "world|observe|gpu|always|asked|never", "",
         "which steps are set up without being asked: those with a task for each GPU, none but say which would be, "
         "those with GPUs, all, or none; never: no step, also none that asks"}),
    row<&Settings::partitions, read_partitions, write_text>(
        {"partitions", "", "", "LIST", "",
         "partitions whose steps are set up without being asked; default stands for srun without a partition"}),
    row<&Settings::launchers, read_programs, write_text>(
        {"launchers", "", "", "LIST", "", "programs of the site that start ranks or other programs themselves"}),
    row<&Settings::trainers, read_programs, write_text>(
        {"trainers", "", "", "LIST", "", "programs of the site that may train, also where they are scripts"}),
    row<&Settings::announce, read_word<bool, kSwitch>, write_word<bool, kSwitch>>(
        {"announce", "", "", "on|off", "", "print a line in each world that nobody asked for"}, AppliesTo::kReport),
    row<&Settings::hints, read_word<bool, kSwitch>, write_word<bool, kSwitch>>(
        {"hints", "", "", "on|off", "", "print why a step that trains with several GPUs is not set up"},
        AppliesTo::kReport),
    row<&Settings::log, read_word<bool, kLog>, write_word<bool, kLog>>(
        {"log", "", "", "off|decisions", "", "write each decision into slurmd's log on the first node of the step"},
        AppliesTo::kReport),
    row<&Settings::port, read_port, write_port>(
        {"port", "SLURM_BOOTSTRAP_PORT", "bootstrap-port", "auto|PORT", "",
         "MASTER_PORT; auto: reserved by Slurm where MpiParams=ports= is set, else computed"}),
    row<&Settings::port_range, read_port_range, write_port_range>(
        {"port_range", "SLURM_BOOTSTRAP_PORT_RANGE", "bootstrap-port-range", "LOW-HIGH", "",
         "range for computed ports; keep it outside ip_local_port_range"}),
    row<&Settings::ports, read_number<kMaxTaskPorts, kPorts, true>, write_number>(
        {"ports", "SLURM_BOOTSTRAP_PORTS", "bootstrap-ports", "N|off", "",
         "number of further ports for each task, for servers of its own, in BOOTSTRAP_PORTS"}),
    row<&Settings::address, read_address, write_text>(
        {"master_addr", "SLURM_BOOTSTRAP_ADDR", "bootstrap-addr", "NAME|TEMPLATE", "",
         "MASTER_ADDR; %h stands for the host of rank 0, as in %h-ib0, %a for its NodeAddr"}),
    row<&Settings::claim, read_word<bool, kSwitch>, write_word<bool, kSwitch>>(
        {"claim", "SLURM_BOOTSTRAP_CLAIM", "bootstrap-claim", "on|off", "",
         "reserve MASTER_PORT and BOOTSTRAP_PORTS until the step ends"}),
    row<&Settings::gpu, read_word<GpuMode, kGpuModes>, write_word<GpuMode, kGpuModes>>(
        {"gpu", "SLURM_BOOTSTRAP_GPU", "bootstrap-gpu", "index|first|narrow|off", "",
         "list of GPUs: the same in all tasks, own one at LOCAL_RANK; own one first; own one alone; as Slurm set it"}),
    row<&Settings::gpu_share, read_word<bool, kSwitch>, write_word<bool, kSwitch>>(
        {"gpu_share", "SLURM_BOOTSTRAP_GPU_SHARE", "bootstrap-gpu-share", "on|off", "on",
         "let several tasks of a node use one GPU"}),
    row<&Settings::cpu_near, read_word<bool, kCpu>, write_word<bool, kCpu>>(
        {"cpu", "SLURM_BOOTSTRAP_CPU", "bootstrap-cpu", "near|off", "",
         "bind each task to those of its cores that are near its GPU"}),
    row<&Settings::preload, read_word<bool, kSwitch>, write_word<bool, kSwitch>>(
        {"preload", "SLURM_BOOTSTRAP_PRELOAD", "bootstrap-preload", "on|off", "on",
         "add libbootstrap.so to LD_PRELOAD of the tasks, after the libraries that are there"}),
    row<&Settings::preload_library, read_preload_library, write_text>(
        {"preload_library", "", "", "PATH", "", "libbootstrap.so on the nodes, where it is not as installed"}),
    row<&Settings::frameworks, read_frameworks, write_frameworks>(
        {"frameworks", "SLURM_BOOTSTRAP_FRAMEWORKS", "bootstrap-frameworks", "auto|all|none|LIST", "",
         "frameworks whose own variables are set, too, such as torchrun,jax; auto: those that harm no other"}),
    row<&Settings::interface, read_interface, write_interface>(
        {"interface", "SLURM_BOOTSTRAP_INTERFACE", "bootstrap-interface", "gloo|auto|NAME|CIDR|off", "",
         "network interface for NCCL, Gloo, NVSHMEM and UCX; auto: the one that routes to MASTER_ADDR; gloo: that one "
         "for Gloo alone"}),
    row<&Settings::grace, read_number<kMaxSeconds, kSeconds, true>, write_number>(
        {"grace", "SLURM_BOOTSTRAP_GRACE", "bootstrap-grace", "SECONDS|off", "",
         "in a step that asked for the plugin: how long the other tasks may go on after one failed"}),
    row<&Settings::shared_dir, read_shared_dir, write_text>(
        {"shared_dir", "SLURM_BOOTSTRAP_SHARED_DIR", "bootstrap-shared-dir", "PATH", "",
         "folder that all nodes see, %u: the user; BOOTSTRAP_INIT_FILE names a new file in it"}),
    row<&Settings::debug, read_debug, write_word<bool, kSwitch>>(
        {"debug", "SLURM_BOOTSTRAP_DEBUG", "", "0|1", "", "write a line for each decision to standard error"},
        AppliesTo::kProcess),
    row<&Settings::timeout, read_number<kMaxSeconds, kSeconds, false>, write_number>(
        {"timeout", "SLURM_BOOTSTRAP_TIMEOUT", "", "SECONDS", "", "deadline of a collective call"},
        AppliesTo::kProcess),
    row<&Settings::timing, read_timing, write_word<bool, kSwitch>>(
        {"timing", "SLURM_BOOTSTRAP_TIMING", "", "0|1", "", "write the time of each round to standard error"},
        AppliesTo::kProcess),
    row<&Settings::nccl_file, read_library, write_text>(
        {"nccl", "SLURM_BOOTSTRAP_NCCL", "", "PATH", "", "the NCCL or RCCL to load"}, AppliesTo::kProcess),
    row<&Settings::pmix_file, read_library, write_text>(
        {"pmix", "SLURM_BOOTSTRAP_PMIX", "", "PATH", "", "the libpmix to load"}, AppliesTo::kProcess),
};

}  // namespace

std::optional<FrameworkChoice> parse_frameworks(std::string_view text) {
  if (text == "all") return FrameworkChoice{false, kAllFrameworks};
  if (text == "none") return FrameworkChoice{false, 0};
  FrameworkChoice set{false, 0};
  for (const auto word : split(text, ',')) {
    if (word == "auto" && !set.is_auto) {
      set.is_auto = true;
      continue;
    }
    const auto* const found = std::find(kFrameworkNames.begin(), kFrameworkNames.end(), word);
    if (found == kFrameworkNames.end()) return std::nullopt;
    set.mask |= 1U << static_cast<unsigned>(found - kFrameworkNames.begin());
  }
  return set;
}

std::string write_frameworks(const FrameworkChoice& set) {
  if (!set.is_auto && set.mask == kAllFrameworks) return "all";
  if (!set.is_auto && set.mask == 0) return "none";
  auto names = names_of(set.mask);
  if (set.is_auto) names.insert(names.begin(), "auto");
  return join(names, ",");
}

bool is_mode(const SettingSpec& spec) { return spec.name == kMode; }

bool SettingSpec::is_for_site() const { return applies_to != AppliesTo::kProcess && !is_mode(*this); }

std::optional<Mode> mode_of(std::string_view value) {
  Settings settings;
  const auto applied = apply_mode(settings, value, Source::kOption);
  if (!applied || settings.mode.source != Source::kOption) return std::nullopt;
  return settings.mode.value;
}

static bool is_of_endpoint(const SettingSpec& spec) {
  return spec.name == "master_addr" || spec.name == "port" || spec.name == "port_range";
}

std::vector<std::string> write_endpoint(const Settings& settings) {
  std::vector<std::string> endpoint;
  for (const auto& spec : kSpecs) {
    if (is_of_endpoint(spec) && spec.source(settings) <= Source::kSite)
      endpoint.push_back(cat({spec.name, "=", spec.write(settings)}));
  }
  return endpoint;
}

void take_endpoint(Settings& settings, const std::vector<std::string>& endpoint) {
  for (const std::string_view text : endpoint) {
    const auto name = text.substr(0, text.find('='));
    const auto value = text.substr(std::min(text.size(), name.size() + 1));
    for (const auto& spec : kSpecs) {
      if (spec.name != name || !is_of_endpoint(spec) || spec.write(settings) == value) continue;
      (void)spec.apply(settings, value, Source::kSite);
    }
  }
}

bool is_host_name(std::string_view text) {
  constexpr std::size_t kMaxHostName = 255;
  return !text.empty() && text.size() <= kMaxHostName && std::all_of(text.begin(), text.end(), is_host_character);
}

std::span<const SettingSpec> setting_specs() { return kSpecs; }

std::string_view when_name(When when) { return kWhens[static_cast<std::size_t>(when)]; }

}  // namespace bootstrap
