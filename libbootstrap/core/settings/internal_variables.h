// The variables by which the parts of this project speak to each other. None of them is a setting.
//
// Name                            Written by                Read by                  In the tasks
// SLURM_BOOTSTRAP_DECISION        srun                      slurmstepd               no
// SLURM_BOOTSTRAP_LAYOUT          srun                      slurmstepd, library      yes, up to 2,048 bytes
// SLURM_BOOTSTRAP_FAILURE         srun                      slurmstepd               no
// SLURM_BOOTSTRAP_GPU_BIND        srun                      slurmstepd               no
// SLURM_BOOTSTRAP_LAUNCH_DEFAULT  srun                      slurmstepd               no
// SRUN_EXPORT_ENV                 srun, in het steps        srun itself              no
// SLURM_BOOTSTRAP_STEP            slurmstepd, preload       all, library             yes
// SLURM_BOOTSTRAP_EXPORTS         slurmstepd, preload       all, library             yes
// SLURM_BOOTSTRAP_SETTINGS        slurmstepd, preload       library                  yes
// SLURM_BOOTSTRAP_GIVEN_UP        preload                   preload                  yes
//
// All begin with SLURM_, which carries them through --export=NONE. Each names its step, so that one of an outer step is
// seen for what it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace bootstrap {

inline constexpr std::string_view kDecisionVariable = "SLURM_BOOTSTRAP_DECISION";   // core/step/srun_decision.h
inline constexpr std::string_view kLayoutVariable = "SLURM_BOOTSTRAP_LAYOUT";       // core/step/rank_layout_text.h
inline constexpr std::string_view kFailureVariable = "SLURM_BOOTSTRAP_FAILURE";     // core/failure/failure.h
inline constexpr std::string_view kUsersBindVariable = "SLURM_BOOTSTRAP_GPU_BIND";  // core/program/srun_arguments.h
inline constexpr std::string_view kLaunchDefaultVariable =
    "SLURM_BOOTSTRAP_LAUNCH_DEFAULT";  // NAME=VALUE that srun was told for this step alone
inline constexpr std::string_view kStepTagVariable = "SLURM_BOOTSTRAP_STEP";     // job.step.restart that set the others
inline constexpr std::string_view kExportsVariable = "SLURM_BOOTSTRAP_EXPORTS";  // name:fingerprint of what was set
inline constexpr std::string_view kSettingsVariable = "SLURM_BOOTSTRAP_SETTINGS";  // core/settings/settings.h
inline constexpr std::string_view kGivenUpVariable =
    "SLURM_BOOTSTRAP_GIVEN_UP";  // as the first: who has failed and said so

// srun's --export for steps of several components, so that what srun adds reaches all of them.
inline constexpr std::string_view kExportVariable = "SRUN_EXPORT_ENV";
inline constexpr std::string_view kExportValue =
    "SLURM_BOOTSTRAP_DECISION,SLURM_BOOTSTRAP_LAYOUT,SLURM_BOOTSTRAP_FAILURE,ALL";

// From srun to slurmstepd, which removes them.
inline constexpr std::array<std::string_view, 4> kMessages{kDecisionVariable, kFailureVariable, kUsersBindVariable,
                                                           kLaunchDefaultVariable};

inline bool is_message(std::string_view name) {
  return name == kExportVariable || name == kLayoutVariable ||
         std::find(kMessages.begin(), kMessages.end(), name) != kMessages.end();
}

}  // namespace bootstrap
