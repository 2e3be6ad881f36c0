// The plugin's options, and where their values come from: plugstack.conf, SLURM_BOOTSTRAP_* variables, the job's
// options, srun's own command line. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/activation/activation_rules.h"
#include "core/settings/settings.h"
#include "spank_api.h"

namespace bootstrap {

// The hook of every context: registers the options and reads the arguments of plugstack.conf.
int init(spank_t spank, int count, char** arguments);

// srun, sbatch, salloc: puts back what `init` changed in the environment for Slurm's own parser to read.
int after_options();

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

// srun: what the user said about the step. The nearest counts: srun's own line, the job's option, SLURM_BOOTSTRAP.
UserChoice user_choice(const Environment& environment);

// An option of ours came with the step.
bool has_options();

}  // namespace bootstrap
