// A SPANK plugin that gives all tasks of a node the environment of one of them, as pyxis does with that of its
// container: the task that comes first into task_init copies its environment into shared memory, and each task takes
// all of it over its own, except for what Slurm sets for each task.
// SPDX-License-Identifier: Apache-2.0
#include <slurm/spank.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

SPANK_PLUGIN(sharing_double, 1)

enum { kFirstSpecialStep = 0xfffffff0, kLargest = 1 << 20, kPause = 1000, kMostPauses = 10000 };

// Pages that are not written take no memory.
struct shared {
  atomic_bool has_first;
  atomic_bool is_written;
  char entries[kLargest];  // each ends with NUL; an empty one is the end
};
static struct shared* shared = NULL;

static bool is_of_task(const char* entry) {
  static const char* const kNames[] = {"SLURM_PROCID=",   "SLURM_LOCALID=", "SLURM_GTIDS=", "SLURM_NODEID=",
                                       "SLURM_TASK_PID=", "PMIX_RANK=",     "PMI_RANK=",    "PMI_FD="};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    if (strncmp(entry, kNames[i], strlen(kNames[i])) == 0) return true;
  }
  return false;
}

static void write_entries(spank_t spank) {
  char** environment = NULL;
  size_t used = 0;
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) return;
  for (; *environment != NULL; ++environment) {
    const size_t size = strlen(*environment) + 1;
    if (used + size >= kLargest) break;
    memcpy(shared->entries + used, *environment, size);
    used += size;
  }
}

static void take_entries(spank_t spank) {
  for (char* entry = shared->entries; *entry != '\0'; entry += strlen(entry) + 1) {
    char* const equals = strchr(entry, '=');
    char name[256];
    const size_t length = equals == NULL ? 0 : (size_t)(equals - entry);
    if (length == 0 || length >= sizeof name || is_of_task(entry)) continue;
    memcpy(name, entry, length);
    name[length] = '\0';
    (void)spank_setenv(spank, name, equals + 1, 1);
  }
}

// Before slurmstepd forks the tasks.
int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  if (spank_context() != S_CTX_REMOTE) return 0;
  void* const memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) shared = memory;
  return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  unsigned step = 0;
  (void)count, (void)arguments;
  if (shared == NULL || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= kFirstSpecialStep)
    return 0;
  if (!atomic_exchange(&shared->has_first, true)) {
    write_entries(spank);
    atomic_store(&shared->is_written, true);
  }
  for (unsigned i = 0; i < kMostPauses && !atomic_load(&shared->is_written); ++i) (void)usleep(kPause);
  take_entries(spank);
  return 0;
}
