// What can be set and by whom: one table for plugstack.conf arguments, SLURM_BOOTSTRAP_* variables and srun options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/hardware/network.h"
#include "core/settings/framework_choice.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Later ones win over earlier ones.
enum class Source : std::uint8_t { kDefault, kSite, kEnvironment, kOption };

template <class T>
struct Setting {
  T value;
  Source source = Source::kDefault;

  bool operator==(const Setting&) const = default;
};

enum class Mode : std::uint8_t { kAuto, kOn, kOff };  // kAuto: as `when` says
// Which steps are set up without being asked: worlds (a task for each GPU), none but told which would be, those that
// asked for GPUs, all, or none.
enum class When : std::uint8_t { kWorld, kObserve, kGpu, kAlways, kAsked };

enum class GpuMode : std::uint8_t {
  kIndex,   // the same list for all tasks of a node, each task's own GPU at position LOCAL_RANK
  kFirst,   // each task's own GPU first, for programs that always use device 0
  kNarrow,  // each task's own GPU alone
  kOff,     // the list as Slurm set it
};

inline constexpr std::uint16_t kMinPort = 1024;  // lower ones belong to root
inline constexpr std::uint32_t kMaxPort = 65535;

struct PortRange {
  std::uint16_t low = 20000;
  std::uint16_t high = 29999;  // inclusive

  bool operator==(const PortRange&) const = default;
};

struct Settings {
  Setting<Mode> mode{Mode::kAuto};
  Setting<bool> explain{false};
  Setting<When> when{When::kWorld};
  Setting<std::string> partitions{""};         // names separated by commas, whose steps `when` is about; empty: of all
  Setting<std::string> launchers{""};          // names of programs separated by commas, as the site's own launchers
  Setting<std::string> trainers{""};           // and training programs
  Setting<std::uint16_t> port{0};              // 0: reserved by Slurm, or computed from port_range
  Setting<PortRange> port_range{PortRange{}};  // below Linux' default ip_local_port_range, 32768 to 60999
  Setting<std::string> address{"%h"};          // %h: the host of rank 0
  Setting<bool> claim{true};                   // hold the port on the host of rank 0 until the step ends
  Setting<GpuMode> gpu{GpuMode::kIndex};
  Setting<bool> gpu_share{false};     // more tasks than GPUs on a node are meant
  Setting<bool> cpu_near{false};      // bind tasks that are bound to more than one place to cores near their GPU
  Setting<std::string> topology{""};  // file with the topology of the node, %h: its NodeName; empty: ask the kernel
  Setting<bool> preload{false};       // LD_PRELOAD of the tasks ends with libbootstrap.so
  Setting<std::string> preload_library{""};  // where that is on the nodes; empty: where it was installed
  Setting<FrameworkChoice> frameworks{FrameworkChoice{}};
  Setting<InterfaceChoice> interface {
    InterfaceChoice {}
  };
  Setting<std::uint32_t> grace{
      30};  // seconds after which a step that was asked for ends with its first failure; 0: never
  Setting<std::string> shared_dir{""};  // folder that all nodes see, %u: the user; empty: no BOOTSTRAP_INIT_FILE

  bool operator==(const Settings&) const = default;
};

// Whether `partitions` holds all that are named, separated by commas: srun may be told several, of which one is taken.
// For a step that names none, "default" is asked for.
bool has_partitions(const Settings& settings, std::string_view names);

// More tasks on a node than GPUs, and nobody said that it is meant.
bool lacks_gpus(const Settings& settings, std::size_t tasks, std::size_t gpus);

inline constexpr std::size_t kMaxSetting = 1024;  // bytes of a value, in each of the three places

// One row of the table. An empty name means: cannot be set this way.
struct SettingSpec {
  std::string_view site;      // argument in plugstack.conf: "port" for port=...
  std::string_view variable;  // SLURM_BOOTSTRAP_PORT
  std::string_view option;    // "bootstrap-port" for --bootstrap-port=...
  std::string_view values;    // what it takes, for usage texts
  std::string_view alone;     // the value of an option that is given without one; empty: it needs a value
  std::string_view help;
  Status (*apply)(Settings&, std::string_view value, Source source);
};

// SLURM_BOOTSTRAP_DEBUG=1: what is decided is written to standard error, one line each. It is no setting: it asks for
// nothing and changes nothing.
inline constexpr std::string_view kDebugVariable = "SLURM_BOOTSTRAP_DEBUG";
inline bool wants_debug(const Environment& environment) { return environment.get(kDebugVariable).value_or("0") != "0"; }

// Letters, digits and "-._:" alone: what a host or an address is written with.
bool is_host_name(std::string_view text);

// --bootstrap=, and what a value of it says of the mode. Nothing: no more than explain, or it is not valid.
bool is_mode(const SettingSpec& spec);
std::optional<Mode> mode_of(std::string_view value);

std::span<const SettingSpec> setting_specs();

std::string_view gpu_mode_name(GpuMode mode);
std::string_view when_name(When when);

// "--bootstrap-port", "SLURM_BOOTSTRAP_PORT" or "port= in plugstack.conf": for messages.
std::string setting_name(const SettingSpec& spec, Source source);
// The same by the argument's name ("port"); of a default, the option or what else can change it.
std::string setting_name(std::string_view site, Source source);
// "--bootstrap-gpu=first", "SLURM_BOOTSTRAP_GPU=first" or "gpu=first in plugstack.conf": as it was written there.
std::string setting_text(std::string_view site, Source source, std::string_view value);

// Applies one value and, when it is wrong, answers with the sentence the user reads. A lower source never replaces
// a value of a higher one, so the order of calls does not matter.
Status apply_setting(Settings& settings, const SettingSpec& spec, std::string_view value, Source source);

// "when=always" as it stands in plugstack.conf.
// The mode is no such argument: a site chooses steps with when=, and asks for none.
Status apply_site_argument(Settings& settings, std::string_view argument);

// Every SLURM_BOOTSTRAP_* variable of the table.
Status apply_environment(Settings& settings, const Environment& environment);

// The same for people, each as its user wrote it: "--bootstrap=on, when=always in plugstack.conf". Empty if none.
std::string list_settings(const Settings& settings);

// Of these the one that asks for the step to be set up: an option, or SLURM_BOOTSTRAP=on. Empty: none does.
std::string asking_setting(const Settings& settings);

// The settings that are not at their default, as SLURM_BOOTSTRAP_SETTINGS carries them to the tasks so that
// `slurm-bootstrap explain` can show where each came from: "site:when=always,option:port=2000". Empty if none.
std::string write_settings(const Settings& settings);
Result<Settings> read_settings(std::string_view text);

}  // namespace bootstrap
