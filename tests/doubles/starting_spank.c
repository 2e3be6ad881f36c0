// A SPANK plugin that starts the program in its own task_init, as GSI's singularity-exec starts it in a container: the
// hooks of the plugins behind it do not run in this task.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <slurm/spank.h>
#include <unistd.h>

SPANK_PLUGIN(starting_double, 1)

enum { kFirstSpecialStep = 0xfffffff0 };

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  unsigned step = 0;
  int words = 0;
  char** program = NULL;
  char** environment = NULL;
  (void)count, (void)arguments;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= kFirstSpecialStep) return 0;
  if (spank_get_item(spank, S_JOB_ARGV, &words, &program) != ESPANK_SUCCESS || words < 1) return -1;
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) return -1;
  (void)execvpe(program[0], program, environment);
  slurm_error("starting_double: cannot start %s", program[0]);
  return -1;
}
