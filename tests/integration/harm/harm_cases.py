"""All rows of the harm suite."""

# SPDX-License-Identifier: Apache-2.0

import cases_everyday_programs
import cases_frameworks
import cases_gpus
import cases_single_tasks
import cases_srun_options
import cases_step_ends
import cases_torchrun
import cases_wrapped_programs

MODULES = (cases_single_tasks, cases_torchrun, cases_gpus, cases_step_ends, cases_frameworks, cases_everyday_programs, cases_srun_options,
           cases_wrapped_programs)
ALL = [case for module in MODULES for case in module.CASES]
