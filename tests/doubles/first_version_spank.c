// A SPANK plugin for the control of the harm suite: it does unasked what the first version of ours did, in every step
// with GPUs, also for single tasks, shells and --pty. It sets the ranks, an address and threads, ends steps with more
// tasks than GPUs, and gives srun other defaults.
// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(first_version, 1)

enum { kSize = 4096, kNumber = 16, kFirstSpecialStep = 0xfffffff0 };

static char gpus[kSize];  // of the step on this node, as Slurm lists them; empty where there are none

static int count_of(const char* list) {
  int count = *list != '\0';
  for (; *list != '\0'; ++list) count += *list == ',';
  return count;
}

// "node[003-004,7]": "node003".
static void first_host(const char* list, char* host, size_t size) {
  const size_t prefix = strcspn(list, "[,");
  const char* const number = list[prefix] == '[' ? list + prefix + 1 : "";
  (void)snprintf(host, size, "%.*s%.*s", (int)prefix, list, (int)strcspn(number, "-,]"), number);
}

static void set(spank_t spank, const char* name, const char* value) { (void)spank_setenv(spank, name, value, 1); }

static void set_number(spank_t spank, const char* name, unsigned number) {
  char text[kNumber];
  (void)snprintf(text, sizeof text, "%u", number);
  set(spank, name, text);
}

static unsigned item(spank_t spank, spank_item_t which) {
  unsigned value = 0;
  (void)spank_get_item(spank, which, &value);
  return value;
}

// As the guess was: the word `gpu` anywhere on the line of srun, the program's own arguments included.
static int line_speaks_of_gpus(void) {
  char line[kSize] = "";
  FILE* const file = fopen("/proc/self/cmdline", "re");
  if (file == NULL) return 0;
  const size_t length = fread(line, 1, sizeof line - 1, file);
  (void)fclose(file);
  for (size_t i = 0; i < length; ++i) {
    if (line[i] == '\0') line[i] = ' ';
  }
  return strstr(line, "gpu") != NULL || getenv("SLURM_GPUS_ON_NODE") != NULL;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  if (spank_context() != S_CTX_LOCAL || !line_speaks_of_gpus()) return 0;
  (void)setenv("SLURM_KILL_BAD_EXIT", "1", 0);
  (void)setenv("SLURM_GPU_BIND", "none", 0);
  return 0;
}

int slurm_spank_user_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  unsigned step = 0;
  gpus[0] = '\0';
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= kFirstSpecialStep) return 0;
  if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", gpus, sizeof gpus) != ESPANK_SUCCESS ||
      !isdigit((unsigned char)gpus[0]))
    gpus[0] = '\0';
  return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  if (gpus[0] == '\0') return 0;
  const unsigned locals = item(spank, S_JOB_LOCAL_TASK_COUNT);
  if (locals > (unsigned)count_of(gpus)) {
    slurm_error("first version: %u tasks and %d GPUs", locals, count_of(gpus));
    _exit(1);
  }
  char list[kSize] = "";
  char host[kSize];
  (void)spank_getenv(spank, "SLURM_STEP_NODELIST", list, sizeof list);
  first_host(list, host, sizeof host);
  set_number(spank, "RANK", item(spank, S_TASK_GLOBAL_ID));
  set_number(spank, "WORLD_SIZE", item(spank, S_JOB_TOTAL_TASK_COUNT));
  set_number(spank, "LOCAL_RANK", item(spank, S_TASK_ID));
  set_number(spank, "LOCAL_WORLD_SIZE", locals);
  set_number(spank, "NODE_RANK", item(spank, S_JOB_NODEID));
  set(spank, "MASTER_ADDR", host);
  set(spank, "MASTER_PORT", "29500");
  set(spank, "CUDA_VISIBLE_DEVICES", gpus);
  set(spank, "OMP_NUM_THREADS", "1");
  set_number(spank, "SLURM_NTASKS_PER_NODE", locals);
  return 0;
}
