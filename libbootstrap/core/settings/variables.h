// The variables that this project reads, each with its longest value, and those that its parts pass on to each other.
//
// Passed on between the parts, and no settings:
//
// Name                            Written by                Read by                  In the tasks
// SLURM_BOOTSTRAP_DECISION        srun                      slurmstepd               no
// SLURM_BOOTSTRAP_LAYOUT          srun                      slurmstepd, library      yes, up to 2,048 bytes
// SLURM_BOOTSTRAP_FAILURE         srun                      slurmstepd               no
// SLURM_BOOTSTRAP_GPU_BIND        srun                      slurmstepd               no
// SLURM_BOOTSTRAP_CPU_BIND        srun                      slurm-bootstrap near     yes, where that is the program
// SLURM_BOOTSTRAP_LAUNCH_DEFAULT  srun                      slurmstepd               no
// SLURM_BOOTSTRAP_SUPERVISOR      slurm-bootstrap supervise srun                     no
// SRUN_EXPORT_ENV                 srun, in het steps        srun itself              no
// RANK, until task_init           srun, in steps that ask   no program: placeholder  no
// SLURM_BOOTSTRAP_STEP            slurmstepd, preload, srun all, library             yes
// SLURM_BOOTSTRAP_EXPORTS         slurmstepd, preload, srun all, library             yes
// SLURM_BOOTSTRAP_SETTINGS        slurmstepd, preload       library                  yes
// SLURM_BOOTSTRAP_GIVEN_UP        preload                   preload                  yes
//
// Names that begin with SLURM_ pass --export=NONE. In a task, SLURM_BOOTSTRAP_STEP or the value itself names the step,
// so that a leftover of an outer step is recognised.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/util/environment.h"

namespace bootstrap {

inline constexpr std::string_view kDecisionVariable = "SLURM_BOOTSTRAP_DECISION";   // core/step/step_facts.h
inline constexpr std::string_view kLayoutVariable = "SLURM_BOOTSTRAP_LAYOUT";       // core/step/rank_layout.h
inline constexpr std::string_view kFailureVariable = "SLURM_BOOTSTRAP_FAILURE";     // core/step/failure.h
inline constexpr std::string_view kUsersBindVariable = "SLURM_BOOTSTRAP_GPU_BIND";  // core/program/srun_arguments.h
inline constexpr std::string_view kCpuBindVariable = "SLURM_BOOTSTRAP_CPU_BIND";  // "12.0 --cpu-bind=cores", the user's
// NAME=VALUE that the plugin set for srun's own options, for this step alone.
inline constexpr std::string_view kLaunchDefaultVariable = "SLURM_BOOTSTRAP_LAUNCH_DEFAULT";
// DESCRIPTOR:INODE of a socket that srun inherits, for the first failure of its step.
inline constexpr std::string_view kSupervisorVariable = "SLURM_BOOTSTRAP_SUPERVISOR";
inline constexpr std::string_view kStepTagVariable = "SLURM_BOOTSTRAP_STEP";     // job.step.restart that set the others
inline constexpr std::string_view kExportsVariable = "SLURM_BOOTSTRAP_EXPORTS";  // name:fingerprint of what was set
inline constexpr std::string_view kSettingsVariable = "SLURM_BOOTSTRAP_SETTINGS";  // core/settings/settings.h
// job.step.restart of a rank that could not be set up and has printed why.
inline constexpr std::string_view kGivenUpVariable = "SLURM_BOOTSTRAP_GIVEN_UP";

// srun's --export for steps of several components, so that what srun adds reaches all of them.
inline constexpr std::string_view kExportVariable = "SRUN_EXPORT_ENV";
inline constexpr std::string_view kExportValue =
    "SLURM_BOOTSTRAP_DECISION,SLURM_BOOTSTRAP_LAYOUT,SLURM_BOOTSTRAP_FAILURE,ALL";
// The same for a step that asks on its own line, whose RANK is a placeholder until task_init.
inline constexpr std::string_view kAskedExportValue =
    "RANK,SLURM_BOOTSTRAP_STEP,SLURM_BOOTSTRAP_EXPORTS,"
    "SLURM_BOOTSTRAP_DECISION,SLURM_BOOTSTRAP_LAYOUT,SLURM_BOOTSTRAP_FAILURE,ALL";
inline bool is_our_export(std::string_view value) { return value == kExportValue || value == kAskedExportValue; }

// srun passes them to slurmstepd, which removes them. srun also removes those that it was started with.
inline constexpr std::array<std::string_view, 5> kMessages{kDecisionVariable, kFailureVariable, kUsersBindVariable,
                                                           kLaunchDefaultVariable, kSupervisorVariable};

inline bool is_message(std::string_view name) {
  return name == kExportVariable || name == kLayoutVariable ||
         std::find(kMessages.begin(), kMessages.end(), name) != kMessages.end();
}

// The user writes the environment of a step, and slurmstepd reads it before it drops root for good. So each value has a
// limit, and the limit bounds the time that a rule takes for the value.
struct KnownVariable {
  std::string_view name;
  std::uint32_t bytes = 0;    // of the value
  std::uint32_t entries = 0;  // of a list with commas, or colons in PATH; 0: the value is no list
  bool is_setting = false;    // a longer value is a wrong one, which the setting's own sentence refuses

  bool accepts(std::string_view value) const;
};

// For SLURM_GPUS_PER_TASK_HET_GROUP_0 that of SLURM_GPUS_PER_TASK. nullopt: the project does not read this variable.
std::optional<KnownVariable> find_known_variable(std::string_view name);

enum class UnknownVariables : std::uint8_t {
  kSkip,  // in srun and slurmstepd
  kKeep,  // in the library, which starts programs with the environment that it was started with
};

// The only way from a process's environment into an Environment. A value above its limit counts as not set, and its
// name is in Environment::refused(). The value of a setting is cut instead, and refused where settings are read.
Environment read_entries(const char* const* entries, UnknownVariables unknown);

// The same for a single value.
void read_entry(Environment& environment, std::string_view name, std::string_view value, UnknownVariables unknown);

// One sentence about the variables that were too long; empty: there are none.
std::string describe_refused(const Environment& environment);

// The same about misspelt names, such as SLURM_BOOTSTRAP_PRT; for explain, srun -v and check.
std::string describe_unknown(const Environment& environment);

}  // namespace bootstrap
