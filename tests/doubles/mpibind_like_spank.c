// A SPANK plugin that does to tasks what mpibind does: in task_init each gets the CPU and the GPU of its number on the
// node, and a number of threads, unless OMP_NUM_THREADS is there already. Only with the option --mpibind-double.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <sched.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

SPANK_PLUGIN(mpibind_double, 1)

static bool is_asked = false;

static int ask(int value, const char* argument, int is_remote) {
  (void)value, (void)argument, (void)is_remote;
  is_asked = true;
  return 0;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  static char name[] = "mpibind-double", usage[] = "bind tasks to cores and GPUs", none[] = "";
  struct spank_option option = {name, none, usage, 0, 0, ask};
  (void)spank_option_register(spank, &option);
  return 0;
}

// The n-th of the CPUs that the task has.
static void bind_to(int n) {
  cpu_set_t all, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && n-- == 0) CPU_SET(cpu, &own);
  }
  if (CPU_COUNT(&own) != 0) (void)sched_setaffinity(0, sizeof own, &own);
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  char text[16];
  char local[16] = "0";
  if (!is_asked) return 0;
  (void)spank_getenv(spank, "SLURM_LOCALID", local, sizeof local);
  const int number = local[0] - '0';
  (void)snprintf(text, sizeof text, "%d", number);
  (void)spank_setenv(spank, "CUDA_VISIBLE_DEVICES", text, 1);
  (void)spank_setenv(spank, "OMP_NUM_THREADS", "93", 0);
  bind_to(number);
  return 0;
}
