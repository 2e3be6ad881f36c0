// A SPANK plugin that records when slurmstepd calls it. Two copies of its file, listed before and after another plugin
// in plugstack.conf, show how long the hooks of that plugin take. Arguments: clock=before or clock=after, and out=FILE,
// to which slurmstepd adds a line for each call when the step ends: "before task_init NODE JOB STEP TASK NANOSECONDS".
// With setenv=COUNT alone it sets COUNT variables in task_init: the least time that any plugin between the clocks can
// need for that.
// SPDX-License-Identifier: Apache-2.0
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

SPANK_PLUGIN(clock_double, 1)

enum { kMaxTasks = 256 };
enum Hook { kUserInit, kTaskPostFork, kTaskInit, kHooks };

static const char* const kNames[kHooks] = {"user_init", "task_post_fork", "task_init"};
static const char kClock[] = "clock=";
static const char kOut[] = "out=";
static const char kSetenv[] = "setenv=";

// Memory shared with the tasks, which write their times here and need not open a file between two hooks.
static volatile int64_t (*times)[kMaxTasks];

static int64_t now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// The text after `=`; NULL without such an argument.
static const char* argument(const char* name, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], name, strlen(name)) == 0) return arguments[i] + strlen(name);
  }
  return NULL;
}

static uint32_t item(spank_t spank, spank_item_t which) {
  uint32_t value = 0;
  (void)spank_get_item(spank, which, &value);
  return value;
}

static void note(enum Hook hook, uint32_t task, int64_t begin, int count, char** arguments) {
  if (times == NULL || task >= kMaxTasks) return;
  const char* const clock = argument(kClock, count, arguments);
  const bool is_before = clock != NULL && strcmp(clock, "before") == 0;
  times[hook][task] = begin;
  // Read the clock again: the forked child's first use of these pages takes time that is not the other plugin's.
  if (is_before) times[hook][task] = now();
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  if (spank_context() != S_CTX_REMOTE || times != NULL) return 0;
  void* const memory = mmap(NULL, sizeof *times * kHooks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) times = memory;
  return 0;
}

int slurm_spank_user_init(spank_t spank, int count, char** arguments) {
  const int64_t begin = now();
  (void)spank;
  note(kUserInit, 0, begin, count, arguments);
  return 0;
}

int slurm_spank_task_post_fork(spank_t spank, int count, char** arguments) {
  const int64_t begin = now();
  note(kTaskPostFork, item(spank, S_TASK_ID), begin, count, arguments);
  return 0;
}

static void set_variables(spank_t spank, int variables) {
  char name[32];
  for (int i = 0; i < variables; ++i) {
    (void)snprintf(name, sizeof name, "CLOCK_DOUBLE_%d", i);
    (void)spank_setenv(spank, name, "twelve bytes", 1);
  }
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  const int64_t begin = now();
  const char* const variables = argument(kSetenv, count, arguments);
  if (variables != NULL) set_variables(spank, atoi(variables));
  note(kTaskInit, item(spank, S_TASK_ID), begin, count, arguments);
  return 0;
}

// slurmstepd calls this when its tasks have ended.
int slurm_spank_exit(spank_t spank, int count, char** arguments) {
  const char* const clock = argument(kClock, count, arguments);
  const char* const path = argument(kOut, count, arguments);
  if (times == NULL || clock == NULL || path == NULL) return 0;
  char* text = NULL;
  size_t size = 0;
  FILE* const lines = open_memstream(&text, &size);
  if (lines == NULL) return 0;
  for (int hook = 0; hook < kHooks; ++hook) {
    for (int task = 0; task < kMaxTasks; ++task) {
      if (times[hook][task] == 0) continue;
      (void)fprintf(lines, "%s %s %u %u %u %d %lld\n", clock, kNames[hook], item(spank, S_JOB_NODEID),
                    item(spank, S_JOB_ID), item(spank, S_JOB_STEPID), task, (long long)times[hook][task]);
    }
  }
  (void)fclose(lines);
  // One write: the other copy and other nodes append to the same file.
  FILE* const out = fopen(path, "a");
  if (out != NULL) {
    (void)setvbuf(out, NULL, _IOFBF, size + 1);
    (void)fwrite(text, 1, size, out);
    (void)fclose(out);
  }
  free(text);
  return 0;
}
