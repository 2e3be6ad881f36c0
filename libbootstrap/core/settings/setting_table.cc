// What can be set and by whom: one table for plugstack.conf arguments, SLURM_BOOTSTRAP_* variables and srun options.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMaxGrace = 86400;
constexpr std::array<std::string_view, 4> kGpuModes{"index", "first", "narrow", "off"};          // by GpuMode
constexpr std::array<std::string_view, 5> kWhens{"world", "observe", "gpu", "always", "asked"};  // by When
constexpr std::string_view kMode = "mode";

template <class T>
Status assign(Setting<T>& setting, T value, Source source) {
  if (source >= setting.source) setting = {std::move(value), source};
  return {};
}

tl::unexpected<Error> refuse(std::string reason) { return fail(ErrorCode::kInvalid, std::move(reason)); }

Status apply_mode(Settings& settings, std::string_view value, Source source) {
  auto mode = std::optional<Mode>();
  bool explain = false;
  for (const auto word : split(value, ',')) {
    if (word == "explain" && !explain) {
      explain = true;
    } else if (word == "on" && !mode) {
      mode = Mode::kOn;
    } else if (word == "off" && !mode) {
      mode = Mode::kOff;
    } else if (word == "auto" && !mode) {
      mode = Mode::kAuto;
    } else {
      return refuse("use on, off, auto or explain (\"on,explain\" for both)");
    }
  }
  // "explain" alone says nothing about the mode, so SLURM_BOOTSTRAP=on stays on under --bootstrap=explain.
  if (mode) (void)assign(settings.mode, *mode, source);
  if (explain || mode) (void)assign(settings.explain, explain, source);
  return {};
}

template <class Word, std::size_t N>
Status apply_word(Setting<Word>& setting, const std::array<std::string_view, N>& words, std::string_view value,
                  Source source, const char* takes) {
  const auto* const found = std::find(words.begin(), words.end(), value);
  if (found == words.end()) return refuse(takes);
  return assign(setting, static_cast<Word>(found - words.begin()), source);
}

Status apply_when(Settings& settings, std::string_view value, Source source) {
  return apply_word(settings.when, kWhens, value, source, "use world, observe, gpu, always or asked");
}

Status apply_grace(Settings& settings, std::string_view value, Source source) {
  if (value == "off") return assign(settings.grace, 0U, source);
  const auto seconds = parse_unsigned(value, kMaxGrace);
  if (!seconds || *seconds == 0) return refuse("use off or a number of seconds from 1 to 86400");
  return assign(settings.grace, static_cast<std::uint32_t>(*seconds), source);
}

bool is_partition(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c != 0x7f; });
}

Status apply_partitions(Settings& settings, std::string_view value, Source source) {
  const auto names = split(value, ',');
  if (!value.empty() && (!std::all_of(names.begin(), names.end(), is_partition))) {
    return refuse("use names of partitions, separated by commas");
  }
  return assign(settings.partitions, std::string(value), source);
}

// Of files without their folders, and of modules.
bool is_program_name(std::string_view name) {
  return !name.empty() && !name.starts_with('-') && std::all_of(name.begin(), name.end(), [](char c) {
    return is_alphanumeric(c) || std::string_view("._+-").find(c) != std::string_view::npos;
  });
}

template <Setting<std::string> Settings::*kSetting>
Status apply_programs(Settings& settings, std::string_view value, Source source) {
  const auto names = split(value, ',');
  if (!value.empty() && !std::all_of(names.begin(), names.end(), is_program_name)) {
    return refuse("use names of programs without folders, separated by commas");
  }
  return assign(settings.*kSetting, std::string(value), source);
}

Status apply_port(Settings& settings, std::string_view value, Source source) {
  if (value == "auto") return assign(settings.port, std::uint16_t{0}, source);
  const auto port = parse_unsigned(value, kMaxPort);
  if (!port || *port < kMinPort) return refuse("use auto or a port from 1024 to 65535");
  return assign(settings.port, static_cast<std::uint16_t>(*port), source);
}

Status apply_port_range(Settings& settings, std::string_view value, Source source) {
  const auto ends = split(value, '-');
  const auto low = parse_unsigned(ends[0], kMaxPort);
  const auto high = parse_unsigned(ends.back(), kMaxPort);
  if (ends.size() != 2 || !low || !high || *low < kMinPort || *high < *low) {
    return refuse("use two ports from 1024 to 65535 in ascending order, such as 20000-29999");
  }
  return assign(settings.port_range, {static_cast<std::uint16_t>(*low), static_cast<std::uint16_t>(*high)}, source);
}

bool is_host_character(char character) {
  return is_alphanumeric(character) || character == '-' || character == '.' || character == '_' || character == ':';
}

Status apply_address(Settings& settings, std::string_view value, Source source) {
  bool valid = !value.empty() && value.size() <= 255;
  for (std::size_t at = 0; valid && at < value.size(); ++at) {
    if (value[at] == '%') {
      valid = ++at < value.size() && value[at] == 'h';
    } else {
      valid = is_host_character(value[at]);
    }
  }
  if (!valid) return refuse("use a host name or address, or a template such as %h-ib0, where %h is the host of rank 0");
  return assign(settings.address, std::string(value), source);
}

template <Setting<bool> Settings::*kMember>
Status apply_switch(Settings& settings, std::string_view value, Source source) {
  if (value != "on" && value != "off") return refuse("use on or off");
  return assign(settings.*kMember, value == "on", source);
}

Status apply_gpu(Settings& settings, std::string_view value, Source source) {
  return apply_word(settings.gpu, kGpuModes, value, source, "use index, first, narrow or off");
}

Status apply_cpu(Settings& settings, std::string_view value, Source source) {
  if (value == "near") return assign(settings.cpu_near, true, source);
  if (value == "off") return assign(settings.cpu_near, false, source);
  return refuse("use near or off");
}

bool is_path(std::string_view value) {
  return value.starts_with('/') &&
         std::none_of(value.begin(), value.end(), [](char c) { return c <= ' ' || c == 0x7f; });
}

Status apply_path(Setting<std::string>& setting, std::string_view value, Source source, const char* takes) {
  if (!value.empty() && !is_path(value)) return refuse(takes);
  return assign(setting, std::string(value), source);
}

Status apply_topology(Settings& settings, std::string_view value, Source source) {
  return apply_path(settings.topology, value, source,
                    "use the absolute path of a file, without spaces; %h stands for the NodeName");
}

// Space and colon separate the entries of LD_PRELOAD and cannot be quoted there.
Status apply_preload_library(Settings& settings, std::string_view value, Source source) {
  if (!value.empty() && (!is_path(value) || value.find(':') != std::string_view::npos)) {
    return refuse("use the absolute path of libbootstrap.so on the nodes, without spaces and colons");
  }
  return assign(settings.preload_library, std::string(value), source);
}

Status apply_frameworks(Settings& settings, std::string_view value, Source source) {
  const auto words = split(value, ',');
  if (std::find(words.begin(), words.end(), "horovod") != words.end()) {
    return refuse("start Horovod programs with: srun slurm-bootstrap run --horovod -- PROGRAM");
  }
  const auto set = parse_frameworks(value);
  if (!set) return refuse(cat({"use auto, all, none or a list of ", known_frameworks()}));
  return assign(settings.frameworks, *set, source);
}

Status apply_interface(Settings& settings, std::string_view value, Source source) {
  auto choice = parse_interface(value);
  if (!choice) return refuse("use gloo, auto, off, the name of a network interface or a network such as 10.0.0.0/8");
  return assign(settings.interface, std::move(*choice), source);
}

Status apply_shared_dir(Settings& settings, std::string_view value, Source source) {
  return apply_path(settings.shared_dir, value, source,
                    "use the absolute path of a folder that all nodes share; %u stands for the user");
}

constexpr std::array kSpecs{
    SettingSpec{kMode, "SLURM_BOOTSTRAP", "bootstrap", "on|off|auto|explain", "",
                "set the variables of this step, or do not; auto: as the site's when= says; explain: also print a "
                "table of them",
                apply_mode},
    SettingSpec{"when", "", "", "world|observe|gpu|always|asked", "",
                "which steps are set up without being asked: those with a task for each GPU, none but say which would "
                "be, those with GPUs, all, or none",
                apply_when},
    SettingSpec{"partitions", "", "", "LIST", "",
                "partitions whose steps are set up without being asked; default stands for srun without a partition",
                apply_partitions},
    SettingSpec{"launchers", "", "", "LIST", "", "programs of the site that start ranks or other programs themselves",
                apply_programs<&Settings::launchers>},
    SettingSpec{"trainers", "", "", "LIST", "", "programs of the site that may train, also where they are scripts",
                apply_programs<&Settings::trainers>},
    SettingSpec{"port", "SLURM_BOOTSTRAP_PORT", "bootstrap-port", "auto|PORT", "",
                "MASTER_PORT; auto: reserved by Slurm where MpiParams=ports= is set, else computed", apply_port},
    SettingSpec{"port_range", "SLURM_BOOTSTRAP_PORT_RANGE", "bootstrap-port-range", "LOW-HIGH", "",
                "range for computed ports; keep it outside ip_local_port_range", apply_port_range},
    SettingSpec{"master_addr", "SLURM_BOOTSTRAP_ADDR", "bootstrap-addr", "NAME|TEMPLATE", "",
                "MASTER_ADDR; %h stands for the host of rank 0, as in %h-ib0", apply_address},
    SettingSpec{"claim", "SLURM_BOOTSTRAP_CLAIM", "bootstrap-claim", "on|off", "",
                "hold MASTER_PORT for the step, so that nothing else can take it", apply_switch<&Settings::claim>},
    SettingSpec{"gpu", "SLURM_BOOTSTRAP_GPU", "bootstrap-gpu", "index|first|narrow|off", "",
                "list of GPUs: the same in all tasks, own one at LOCAL_RANK; own one first; own one alone; as Slurm "
                "set it",
                apply_gpu},
    SettingSpec{"gpu_share", "SLURM_BOOTSTRAP_GPU_SHARE", "bootstrap-gpu-share", "on|off", "on",
                "let several tasks of a node use one GPU", apply_switch<&Settings::gpu_share>},
    SettingSpec{"cpu", "SLURM_BOOTSTRAP_CPU", "bootstrap-cpu", "near|off", "",
                "bind each task to those of its cores that are near its GPU", apply_cpu},
    SettingSpec{"topology", "", "", "PATH", "", "which cores each GPU is near to, written by slurm-bootstrap topology",
                apply_topology},
    SettingSpec{"preload", "SLURM_BOOTSTRAP_PRELOAD", "bootstrap-preload", "on|off", "on",
                "add libbootstrap.so to LD_PRELOAD of the tasks, so that a rank that does not come to NCCL is named",
                apply_switch<&Settings::preload>},
    SettingSpec{"preload_library", "", "", "PATH", "", "libbootstrap.so on the nodes, where it is not as installed",
                apply_preload_library},
    SettingSpec{"frameworks", "SLURM_BOOTSTRAP_FRAMEWORKS", "bootstrap-frameworks", "auto|all|none|LIST", "",
                "frameworks whose own variables are set, too, such as torchrun,jax; auto: those that harm no other",
                apply_frameworks},
    SettingSpec{"interface", "SLURM_BOOTSTRAP_INTERFACE", "bootstrap-interface", "gloo|auto|NAME|CIDR|off", "",
                "network interface for NCCL, Gloo, NVSHMEM and UCX; auto: the one that routes to MASTER_ADDR; "
                "gloo: that one for Gloo alone",
                apply_interface},
    SettingSpec{"grace", "SLURM_BOOTSTRAP_GRACE", "bootstrap-grace", "SECONDS|off", "",
                "in a step that asked for the plugin: how long the other tasks may go on after one failed",
                apply_grace},
    SettingSpec{"shared_dir", "SLURM_BOOTSTRAP_SHARED_DIR", "bootstrap-shared-dir", "PATH", "",
                "folder that all nodes see, %u: the user; BOOTSTRAP_INIT_FILE names a new file in it",
                apply_shared_dir},
};

}  // namespace

bool is_mode(const SettingSpec& spec) { return spec.site == kMode; }

std::optional<Mode> mode_of(std::string_view value) {
  Settings settings;
  const auto applied = apply_mode(settings, value, Source::kOption);
  if (!applied || settings.mode.source != Source::kOption) return std::nullopt;
  return settings.mode.value;
}

bool is_host_name(std::string_view text) {
  constexpr std::size_t kMaxHostName = 255;
  return !text.empty() && text.size() <= kMaxHostName && std::all_of(text.begin(), text.end(), is_host_character);
}

std::span<const SettingSpec> setting_specs() { return kSpecs; }

std::string setting_name(const SettingSpec& spec, Source source) {
  if (source == Source::kOption) return cat({"--", spec.option});
  if (source == Source::kEnvironment) return std::string(spec.variable);
  return cat({spec.site, "= in plugstack.conf"});
}

Status apply_setting(Settings& settings, const SettingSpec& spec, std::string_view value, Source source) {
  // No setting takes a control character, so a value that is too long gets the sentence of a wrong one.
  auto applied = spec.apply(settings, value.size() > kMaxSetting ? "\x01" : value, source);
  if (applied) return applied;
  const auto name = source == Source::kOption        ? cat({"--", spec.option, "="})
                    : source == Source::kEnvironment ? cat({spec.variable, "="})
                                                     : cat({spec.site, "="});
  const auto where = source == Source::kSite ? " in plugstack.conf" : "";
  return refuse(cat({name, quoted(value), where, " is not valid: ", applied.error().message}));
}

Status apply_site_argument(Settings& settings, std::string_view argument) {
  const auto equals = argument.find('=');
  const auto name = argument.substr(0, equals);
  std::string known;
  for (const auto& spec : kSpecs) {
    if (is_mode(spec)) continue;
    if (spec.site == name && equals != std::string_view::npos) {
      return apply_setting(settings, spec, argument.substr(equals + 1), Source::kSite);
    }
    known += cat({known.empty() ? "" : ", ", spec.site, "="});
  }
  return refuse(cat({"argument ", quoted(argument), " in plugstack.conf is unknown; the known arguments are ", known}));
}

Status apply_environment(Settings& settings, const Environment& environment) {
  Status outcome;
  for (const auto& spec : kSpecs) {
    const auto value = spec.variable.empty() ? std::nullopt : environment.get(spec.variable);
    if (!value) continue;
    auto applied = apply_setting(settings, spec, *value, Source::kEnvironment);
    if (!applied && outcome) outcome = std::move(applied);
  }
  return outcome;
}

bool has_partitions(const Settings& settings, std::string_view names) {
  if (settings.partitions.value.empty()) return true;
  const auto known = split(settings.partitions.value, ',');
  const auto asked = split(names.empty() ? "default" : names, ',');
  return std::all_of(asked.begin(), asked.end(),
                     [&](auto name) { return std::find(known.begin(), known.end(), name) != known.end(); });
}

bool lacks_gpus(const Settings& settings, std::size_t tasks, std::size_t gpus) {
  return tasks > gpus && !settings.gpu_share.value && settings.gpu.value != GpuMode::kOff;
}

std::string_view when_name(When when) { return kWhens[static_cast<std::size_t>(when)]; }

std::string_view gpu_mode_name(GpuMode mode) { return kGpuModes[static_cast<std::size_t>(mode)]; }

}  // namespace bootstrap
