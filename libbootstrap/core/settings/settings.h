// What can be set and by whom: one table for plugstack.conf arguments, SLURM_BOOTSTRAP_* variables and srun options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/hardware/network.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Each has variables of its own beside RANK and WORLD_SIZE, which are always set. The names are in the order of the
// enum.
enum class Framework : std::uint8_t {
  kPytorch,
  kTorchrun,
  kAccelerate,
  kLightning,
  kTensorflow,
  kJax,
  kNvshmem,
  kNcclTests,
  kOpenmp,
};
inline constexpr auto kFrameworkNames = std::to_array<std::string_view>(
    {"pytorch", "torchrun", "accelerate", "lightning", "tensorflow", "jax", "nvshmem", "nccl-tests", "openmp"});
inline constexpr std::size_t kFrameworkCount = kFrameworkNames.size();

constexpr std::string_view framework_name(Framework framework) {
  return kFrameworkNames[static_cast<std::size_t>(framework)];
}

// "auto", "all", "none" or a list such as "torchrun,jax"; "auto,tensorflow" adds to auto.
struct FrameworkChoice {
  bool is_auto = true;     // those that cannot harm others, if the step suits them
  std::uint32_t mask = 0;  // by Framework: those that were named

  bool asks_for(Framework framework) const { return ((mask >> static_cast<unsigned>(framework)) & 1U) != 0; }
  bool operator==(const FrameworkChoice&) const = default;
};
std::optional<FrameworkChoice> parse_frameworks(std::string_view text);
std::string write_frameworks(const FrameworkChoice& set);

// Later sources override earlier ones.
enum class Source : std::uint8_t { kDefault, kSite, kEnvironment, kOption };

template <class T>
struct Setting {
  T value;
  Source source = Source::kDefault;

  bool operator==(const Setting&) const = default;
};

enum class Mode : std::uint8_t { kAuto, kOn, kOff };  // kAuto: `when` decides
// Which unasked steps are set up, in the order of the values: those with a task for each GPU; none, but each step is
// reported; those with GPUs; all; none. With kNever no step is set up, not even one that asks.
enum class When : std::uint8_t { kWorld, kObserve, kGpu, kAlways, kAsked, kNever };

enum class GpuMode : std::uint8_t {
  kIndex,   // the same list for all tasks of a node, each task's own GPU at position LOCAL_RANK
  kFirst,   // each task's own GPU first, for programs that always use device 0
  kNarrow,  // each task's own GPU alone
  kOff,     // the list as Slurm set it
};

inline constexpr std::uint16_t kMinPort = 1024;  // lower ones belong to root
inline constexpr std::uint32_t kMaxPort = 65535;
inline constexpr std::uint32_t kMaxTaskPorts = 8;  // of one task; slurmstepd holds a descriptor for each

struct PortRange {
  std::uint16_t low = 20000;
  std::uint16_t high = 29999;  // inclusive

  bool operator==(const PortRange&) const = default;
};

struct Settings {
  Setting<Mode> mode{Mode::kAuto};
  Setting<bool> explain{false};
  Setting<When> when{When::kWorld};
  Setting<std::string> partitions{""};         // partitions to which `when` applies, separated by commas; empty: all
  Setting<std::string> launchers{""};          // names of programs separated by commas, as the site's own launchers
  Setting<std::string> trainers{""};           // and training programs
  Setting<bool> announce{true};                // srun prints a line for each world that was not asked for
  Setting<bool> hints{false};                  // and for steps that train with GPUs and are no world
  Setting<bool> log{false};                    // each decision is a line in slurmd's log
  Setting<std::uint16_t> port{0};              // 0: reserved by Slurm, or computed from port_range
  Setting<PortRange> port_range{PortRange{}};  // below Linux' default ip_local_port_range, 32768 to 60999
  Setting<std::uint32_t> ports{0};             // further ports of each task, in BOOTSTRAP_PORTS
  Setting<std::string> address{"%h"};          // %h: the host of rank 0
  Setting<bool> claim{true};                   // hold the port on the host of rank 0 until the step ends
  Setting<GpuMode> gpu{GpuMode::kIndex};
  Setting<bool> gpu_share{false};            // allow more tasks than GPUs on a node
  Setting<bool> cpu_near{false};             // bind each task to those of its cores that are near its GPU
  Setting<bool> preload{false};              // LD_PRELOAD of the tasks ends with libbootstrap.so
  Setting<std::string> preload_library{""};  // its path on the nodes; empty: where it was installed
  Setting<FrameworkChoice> frameworks{FrameworkChoice{}};
  Setting<InterfaceChoice> interface = {InterfaceChoice{}};
  Setting<std::uint32_t> grace{30};     // seconds from the first failure to the end of a step that asked; 0: no end
  Setting<std::string> shared_dir{""};  // folder that all nodes see, %u: the user; empty: no BOOTSTRAP_INIT_FILE

  // Of one process, by its own environment.
  Setting<bool> debug{false};          // one line for each decision on standard error
  Setting<std::uint32_t> timeout{60};  // seconds until a collective call fails
  Setting<bool> timing{false};         // one line for each round of an exchange on standard error
  Setting<std::string> nccl_file{""};  // the libnccl or librccl to load; empty: the system's
  Setting<std::string> pmix_file{""};  // likewise the libpmix

  bool operator==(const Settings&) const = default;
};

// True if `partitions` holds all of these names, separated by commas: srun accepts several partitions and uses one. A
// step without a partition matches "default".
bool has_partitions(const Settings& settings, std::string_view names);

// True if a node has more tasks than GPUs and the user did not allow sharing.
bool lacks_gpus(const Settings& settings, std::size_t tasks, std::size_t gpus);

inline constexpr std::size_t kMaxSetting = 1024;  // bytes of a value, in each of the three places

enum class AppliesTo : std::uint8_t {
  kStep,     // to all tasks of a step, which get it in SLURM_BOOTSTRAP_SETTINGS; a wrong value refuses a step that asks
  kReport,   // to what srun and slurmd report; tasks do not get it
  kProcess,  // to the process that has the variable in its environment
};

// An empty `variable` or `option` means: cannot be set this way.
struct SettingNames {
  std::string_view name;      // "port"; in plugstack.conf port=..., for settings of a step but the mode
  std::string_view variable;  // SLURM_BOOTSTRAP_PORT
  std::string_view option;    // "bootstrap-port" for --bootstrap-port=...
  std::string_view values;    // what it takes, for usage texts
  std::string_view alone;     // the value of an option that is given without one; empty: it needs a value
  std::string_view help;
};

// One row of the table.
struct SettingSpec : SettingNames {
  Status (*apply)(Settings&, std::string_view value, Source source);
  std::string (*write)(const Settings&);  // as `apply` reads it
  Source (*source)(const Settings&);
  AppliesTo applies_to;

  bool is_for_site() const;
};

std::span<const SettingSpec> setting_specs();

// True for the setting of --bootstrap=. mode_of() reads the mode in its value; nullopt: explain alone, or not valid.
bool is_mode(const SettingSpec& spec);
std::optional<Mode> mode_of(std::string_view value);

// True if the text has only characters of host names and addresses: letters, digits and "-._:".
bool is_host_name(std::string_view text);

std::string_view when_name(When when);

// Where the setting of this name ("port") was set, for messages: "--bootstrap-port", "SLURM_BOOTSTRAP_PORT" or "port=
// in plugstack.conf". For a default: the option, or what else can change it.
std::string setting_name(const Settings& settings, std::string_view name);
// The same with its value: "--bootstrap-gpu=first", "SLURM_BOOTSTRAP_GPU=first" or "gpu=first in plugstack.conf".
std::string setting_text(const Settings& settings, std::string_view name);

// Applies one value, or returns the sentence for the user. A lower source never replaces a value of a higher one, so
// the order of calls does not matter.
Status apply_setting(Settings& settings, const SettingSpec& spec, std::string_view value, Source source);

// The site's settings from which MASTER_ADDR and MASTER_PORT follow, "port=auto". All nodes use those of srun's host: a
// change of plugstack.conf reaches one host after the other, and ranks with different ports would wait for each other.
std::vector<std::string> write_endpoint(const Settings& settings);
void take_endpoint(Settings& settings, const std::vector<std::string>& endpoint);

// "when=always" as it stands in plugstack.conf. A site chooses steps with when=, and cannot set the mode.
Status apply_site_argument(Settings& settings, std::string_view argument);

// The variables of the settings that apply to a step, or to a process. Returns the first error, and applies the other
// values.
Status apply_environment(Settings& settings, const Environment& environment, AppliesTo part = AppliesTo::kStep);

// Reads the settings of one process. A wrong value counts as not set.
Settings process_settings(const Environment& environment);

// The settings of a step that are not at their default, for people: "--bootstrap=on, when=always in plugstack.conf".
std::string list_settings(const Settings& settings);

// Returns the setting that asks for the step to be set up: an option, or SLURM_BOOTSTRAP=on; empty if none does.
std::string asking_setting(const Settings& settings);

// The same in the form of SLURM_BOOTSTRAP_SETTINGS, so that `slurm-bootstrap explain` in a task shows where each was
// set: "site:when=always option:port=2000".
std::string write_settings(const Settings& settings);
Result<Settings> read_settings(std::string_view text);

}  // namespace bootstrap
