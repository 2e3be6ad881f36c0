// A SPANK plugin that does what plugins of sites do, chosen by its argument, so that ours can be tried before and after
// it.
//   pyxis    --container-image=NAME: the task gets the environment of the image, and in an image of PyTorch its ranks,
//   as
//            pyxis (pyxis_slurmstepd.c, pytorch_setup) and enroot's hook 50-slurm-pytorch.sh do
//   mpibind  each task gets its part of the node's GPUs and cores, as LLNL's mpibind does: a value of OMP_NUM_THREADS
//   that
//            is there in task_init is the user's
//   cray     PMI_CONTROL_PORT, as mpi/cray_shasta sets it: the first of the step's reserved ports
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(site_double, 1)

enum { kSize = 4096, kNumber = 16, kFirstSpecialStep = 0xfffffff0 };

static int is_pyxis, is_mpibind, is_cray;
static char image[kSize];

static int take_image(int value, const char* text, int is_remote) {
  (void)value;
  (void)is_remote;
  (void)snprintf(image, sizeof image, "%s", text);
  return 0;
}

static struct spank_option container_image = {
    "container-image", "NAME", "[pyxis double] the image whose environment the tasks get", 1, 0, take_image};

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    is_pyxis |= strcmp(arguments[i], "pyxis") == 0;
    is_mpibind |= strcmp(arguments[i], "mpibind") == 0;
    is_cray |= strcmp(arguments[i], "cray") == 0;
  }
  if (is_pyxis && spank_context() != S_CTX_SLURMD) (void)spank_option_register(spank, &container_image);
  return 0;
}

static int is_ordinary_step(spank_t spank) {
  unsigned step = 0;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < kFirstSpecialStep;
}

static int is_set(spank_t spank, const char* name) {
  char value[kSize];
  return spank_getenv(spank, name, value, sizeof value) == ESPANK_SUCCESS;
}

static void set_number(spank_t spank, const char* name, unsigned number, int overwrite) {
  char text[kNumber];
  (void)snprintf(text, sizeof text, "%u", number);
  (void)spank_setenv(spank, name, text, overwrite);
}

static unsigned item(spank_t spank, spank_item_t which) {
  unsigned value = 0;
  (void)spank_get_item(spank, which, &value);
  return value;
}

static void enter_container(spank_t spank) {
  (void)spank_setenv(spank, "CONTAINER_IMAGE", image, 1);
  if (strstr(image, "pytorch") == NULL) return;
  (void)spank_setenv(spank, "PYTORCH_VERSION", "2.3.0", 1);
  // enroot's hook: each only where the container has none; pyxis: always.
  if (!is_set(spank, "MASTER_PORT")) (void)spank_setenv(spank, "MASTER_PORT", "61000", 0);
  set_number(spank, "WORLD_SIZE", item(spank, S_JOB_TOTAL_TASK_COUNT), 0);
  set_number(spank, "RANK", item(spank, S_TASK_GLOBAL_ID), 1);
  set_number(spank, "LOCAL_RANK", item(spank, S_TASK_ID), 1);
}

// The entries FIRST to LAST of a list.
static void part_of(const char* list, unsigned first, unsigned last, char* part) {
  char copy[kSize];
  char* rest = NULL;
  (void)snprintf(copy, sizeof copy, "%s", list);
  part[0] = '\0';
  unsigned place = 0;
  for (char* word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest), ++place) {
    if (place < first || place > last) continue;
    const size_t length = strlen(part);
    (void)snprintf(part + length, kSize - length, "%s%s", length == 0 ? "" : ",", word);
  }
}

static void bind_task(spank_t spank) {
  const unsigned local = item(spank, S_TASK_ID);
  const unsigned locals = item(spank, S_JOB_LOCAL_TASK_COUNT);
  char list[kSize];
  char part[kSize];
  if (locals == 0) return;
  if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof list) == ESPANK_SUCCESS) {
    unsigned count = 1;
    for (const char* place = list; *place != '\0'; ++place) count += *place == ',';
    const unsigned share = count / locals > 0 ? count / locals : 1;
    const unsigned first = local * share % count;
    part_of(list, first, first + share - 1, part);
    (void)spank_setenv(spank, "CUDA_VISIBLE_DEVICES", part, 1);
  }
  cpu_set_t cores;
  const unsigned known = sched_getaffinity(0, sizeof cores, &cores) == 0 ? (unsigned)CPU_COUNT(&cores) : 1;
  set_number(spank, "OMP_NUM_THREADS", known, 0);
}

int slurm_spank_user_init(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  char ports[kSize];
  if (!is_cray || !is_ordinary_step(spank)) return 0;
  if (spank_getenv(spank, "SLURM_STEP_RESV_PORTS", ports, sizeof ports) != ESPANK_SUCCESS) return 0;
  ports[strcspn(ports, "-,")] = '\0';
  (void)spank_setenv(spank, "PMI_CONTROL_PORT", ports, 1);
  return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  if (!is_ordinary_step(spank)) return 0;
  if (is_pyxis && image[0] != '\0') enter_container(spank);
  if (is_mpibind) bind_task(spank);
  return 0;
}
