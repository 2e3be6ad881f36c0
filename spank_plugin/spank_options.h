// The plugin's options, and where values come from: plugstack.conf, SLURM_BOOTSTRAP_* variables, the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/activation/activation_rules.h"
#include "core/settings/settings.h"
#include "spank_api.h"

namespace bootstrap {

// In init: registers the options and reads the arguments of plugstack.conf. False if there is nothing to do: in slurmd,
// or for a plugin that is listed twice.
bool begin_options(spank_t spank, int count, char** arguments);

const Settings& site_settings();

// srun: the next callbacks are for the job's options, from the environment. srun parses the options again for each
// component of a heterogeneous step, the job's first.
void expect_options_of_job();

// srun, before it parses its own line: true if the job's option or SLURM_BOOTSTRAP asks.
bool job_asks();

// sbatch and salloc: hands the options to the job as variables, and removes those of an outer step.
void pass_options_to_job();

// False in a user_init under SlurmdParameters=contain_spank (since 24.05), which runs in a child process. The child
// shares slurmstepd's memory, but not its descriptors, and ends before slurmstepd.
bool runs_in_slurmstepd();

// All settings for the environment of this job; later sources win. A wrong value is ignored. A wrong option stops the
// command on the submit host, so a wrong value on a node is the site's, a variable's, or forged.
struct CollectedSettings {
  Settings settings;
  std::optional<Error> error;  // the first wrong value; site_error(), if there is one
};
CollectedSettings collect_settings(const Environment& environment);

// Returns the error in plugstack.conf, which may differ on each host.
const std::optional<Error>& site_error();

// srun: what the user asked for. srun's own line wins over the job's option, and the job's option over SLURM_BOOTSTRAP.
UserChoice user_choice(const Environment& environment);

// True if the step has an option of ours.
bool has_options();

}  // namespace bootstrap
