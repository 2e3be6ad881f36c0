// The plugin's options, and where their values come from: plugstack.conf, BOOTSTRAP_* variables, the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/settings.h"
#include "spank_api.h"

namespace bootstrap {

// The hook of every context: registers the options and reads the arguments of plugstack.conf.
int init(spank_t spank, int count, char** arguments);

// srun, sbatch, salloc: puts back what `init` changed in the environment for Slurm's own parser to read.
int after_options();

// False in a user_init that Slurm contains (SlurmdParameters=contain_spank, since 24.05): a child that shares the
// memory of slurmstepd, and neither its descriptors nor its life.
bool runs_in_slurmstepd();

// slurmstepd: everything that was set, by rising precedence, for the environment of this job. The first wrong value is
// an error; on the submit host it would have stopped the command, so here it is the site's or was smuggled in.
Result<Settings> collect_settings(const Environment& job_environment);

// slurmstepd: plugstack.conf of this node is wrong; that of other nodes may be right.
bool is_site_wrong();

// The same without the wrong values: whether the step applies, and with it the error, is asked of these.
Settings right_settings(const Environment& job_environment);

}  // namespace bootstrap
