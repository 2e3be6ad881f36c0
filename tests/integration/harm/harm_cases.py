"""All rows of the harm suite."""

# SPDX-License-Identifier: Apache-2.0

import cases_alone
import cases_ends
import cases_frameworks
import cases_gpus
import cases_torchrun
import cases_week

ALL = [case for module in (cases_alone, cases_torchrun, cases_gpus, cases_ends, cases_frameworks, cases_week) for case in module.CASES]
