// The plugin's options, and where values come from: plugstack.conf, SLURM_BOOTSTRAP_* variables, the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/activation/activation_rules.h"
#include "core/settings/settings.h"
#include "spank_api.h"

namespace bootstrap {

// In init: registers the options and reads the arguments of plugstack.conf. False where there is nothing to do: slurmd,
// or a plugin that is listed twice.
bool begin_options(spank_t spank, int count, char** arguments);

// An option was lost in slurmstepd, so that what the user asked for is not known.
bool has_lost_options();

const Settings& site_settings();

// srun: the next callbacks are those of the job's options, which come with the environment. srun parses the options of
// each component of a heterogeneous step anew, the job's first.
void expect_options_of_job();

// srun, before its own line is parsed: the job's option or SLURM_BOOTSTRAP asks.
bool job_asks();

// sbatch and salloc: hands the options to the job as variables, and removes those of an outer step.
void pass_options_to_job();

// False in a user_init that Slurm contains (SlurmdParameters=contain_spank, since 24.05): a child that shares the
// memory of slurmstepd, and neither its descriptors nor its life.
bool runs_in_slurmstepd();

// Everything that was set, by rising precedence, for the environment of this job. A wrong value is passed over. On the
// submit host it would have stopped the command if it was an option, so on a node it is the site's, a variable's, or
// was smuggled in.
struct CollectedSettings {
  Settings settings;
  std::optional<Error> error;  // the first wrong value
  bool is_sites = false;       // it is in plugstack.conf, of which each node has its own
};
CollectedSettings collect_settings(const Environment& environment);

// What is wrong in plugstack.conf of this host.
const std::optional<Error>& site_error();

// srun: what the user asked for. The nearest counts: srun's own line, the job's option, SLURM_BOOTSTRAP.
UserChoice user_choice(const Environment& environment);

// True if the step has an option of ours.
bool has_options();

}  // namespace bootstrap
