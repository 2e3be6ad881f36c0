// A SPANK plugin that behaves like plugins of sites, so that ours can be tested before and behind it. Its arguments:
//   pyxis         --container-image=NAME gives the task the environment of the image, and in an image of PyTorch its
//                 ranks, as pyxis (pyxis_slurmstepd.c, pytorch_setup) and enroot's hook 50-slurm-pytorch.sh do
//   hide=FOLDER   the container has a mount namespace of its own, where this folder is empty
//   NAME=VALUE    a variable of the image
//   mpibind       each task gets its part of the node's GPUs, and threads, as LLNL's mpibind does it: a value of
//                 OMP_NUM_THREADS that task_init finds is the user's
//   cray          PMI_CONTROL_PORT, as mpi/cray_shasta sets it: the first of the step's reserved ports
//   uuids=ID,...  the lists of GPUs have the UUID of each GPU in place of its number, as if Slurm knew UUIDs
//   late          SITE_LATE="HOOK NODE SECONDS" in the step's environment: HOOK, user_init or task_init, takes this
//                 long on this node, like the import of an image
//   share         the environment of the first task of a node replaces that of each other task, except for variables
//                 that Slurm sets for each task, as pyxis does with the environment of its container
//   start         starts the program in task_init, as GSI's singularity-exec starts it in a container: the hooks of
//                 plugins behind it do not run in this task
//   options       registers --bootstrap and --bootstrap-port, which are our names: Slurm gives each name to the plugin
//                 that is first in plugstack.conf
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

SPANK_PLUGIN(site_double, 1)

enum { kSize = 4096, kNumber = 16, kLargest = 1 << 20, kPause = 1000, kMostPauses = 10000 };
enum { kFirstSpecialStep = 0xfffffff0 };

static char image[kSize];

// Shared by all tasks of a node. Pages that are not written take no memory.
struct shared {
  atomic_bool has_first;
  atomic_bool is_written;
  char entries[kLargest];  // each ends with NUL; an empty one is the end
};
static struct shared* shared = NULL;

static int take_image(int value, const char* text, int is_remote) {
  (void)value, (void)is_remote;
  (void)snprintf(image, sizeof image, "%s", text);
  return 0;
}

static int print_option(int value, const char* text, int is_remote) {
  (void)value;
  if (!is_remote) slurm_error("site_double: given %s", text != NULL ? text : "nothing");
  return 0;
}

// The text after `name`, such as "hide=", in the first argument that begins with it; NULL if there is none.
static const char* argument(const char* name, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], name, strlen(name)) == 0) return arguments[i] + strlen(name);
  }
  return NULL;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  // Slurm's declarations lack const for texts that it does not change.
  static char container[] = "container-image", port[] = "bootstrap-port", mode[] = "bootstrap", value[] = "VALUE";
  static char usage[] = "[site double] of another plugin";
  struct spank_option of_container = {container, value, usage, 1, 0, take_image};
  struct spank_option of_port = {port, value, usage, 1, 0, print_option};
  struct spank_option of_mode = {mode, value, usage, 1, 1, print_option};
  if (spank_context() == S_CTX_SLURMD) return 0;
  if (argument("share", count, arguments) != NULL && spank_context() == S_CTX_REMOTE) {
    // Before slurmstepd forks the tasks.
    void* const memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) shared = memory;
  }
  if (argument("pyxis", count, arguments) != NULL) (void)spank_option_register(spank, &of_container);
  if (argument("options", count, arguments) != NULL) {
    (void)spank_option_register(spank, &of_port);
    (void)spank_option_register(spank, &of_mode);
  }
  return 0;
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

static bool write_file(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
  close(file);
  return is_written;
}

// Enters a container as without a privileged helper: the user stays the same, and root becomes the overflow user.
static bool hide(const char* folder) {
  char map[64];
  (void)snprintf(map, sizeof map, "%u %u 1", geteuid(), geteuid());
  (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // root forked this process: its files in /proc would be root's
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/uid_map", map) &&
         mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("none", folder, "tmpfs", 0, NULL) == 0;
}

static void enter_container(spank_t spank, int count, char** arguments) {
  const char* const folder = argument("hide=", count, arguments);
  if (folder != NULL && !hide(folder)) slurm_error("site_double: cannot hide %s in a namespace", folder);
  (void)spank_setenv(spank, "CONTAINER_IMAGE", image, 1);
  for (int i = 0; i < count; ++i) {
    char name[64];
    const char* const equals = strchr(arguments[i], '=');
    if (equals == NULL || !isupper((unsigned char)arguments[i][0])) continue;
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - arguments[i]), arguments[i]);
    (void)spank_setenv(spank, name, equals + 1, 1);
  }
  if (strstr(image, "pytorch") == NULL) return;
  (void)spank_setenv(spank, "PYTORCH_VERSION", "2.3.0", 1);
  // enroot's hook sets each of these only if the container has none; pyxis always.
  (void)spank_setenv(spank, "MASTER_PORT", "61000", 0);
  set_number(spank, "WORLD_SIZE", item(spank, S_JOB_TOTAL_TASK_COUNT), 0);
  set_number(spank, "RANK", item(spank, S_TASK_GLOBAL_ID), 1);
  set_number(spank, "LOCAL_RANK", item(spank, S_TASK_ID), 1);
}

// Adds the entries FIRST to LAST of a list to another one.
static void add_part(char* list, const char* from, unsigned first, unsigned last) {
  char copy[kSize];
  char* rest = NULL;
  (void)snprintf(copy, sizeof copy, "%s", from);
  unsigned place = 0;
  for (char* word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest), ++place) {
    if (place < first || place > last) continue;
    const size_t length = strlen(list);
    (void)snprintf(list + length, kSize - length, "%s%s", length == 0 ? "" : ",", word);
  }
}

static void bind_task(spank_t spank) {
  const unsigned local = item(spank, S_TASK_ID);
  const unsigned locals = item(spank, S_JOB_LOCAL_TASK_COUNT);
  char list[kSize];
  char part[kSize] = "";
  if (locals == 0) return;
  if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof list) == ESPANK_SUCCESS) {
    unsigned count = 1;
    for (const char* place = list; *place != '\0'; ++place) count += *place == ',';
    const unsigned share = count / locals > 0 ? count / locals : 1;
    const unsigned first = local * share % count;
    add_part(part, list, first, first + share - 1);
    (void)spank_setenv(spank, "CUDA_VISIBLE_DEVICES", part, 1);
  }
  (void)spank_setenv(spank, "OMP_NUM_THREADS", "93", 0);
}

static void name_gpus(spank_t spank, const char* uuids) {
  char list[kSize];
  char names[kSize] = "";
  char* rest = NULL;
  if (uuids == NULL || spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof list) != ESPANK_SUCCESS) return;
  if (!isdigit((unsigned char)list[0])) return;
  for (char* word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
    const unsigned number = (unsigned)strtoul(word, NULL, 10);
    add_part(names, uuids, number, number);
  }
  (void)spank_setenv(spank, "CUDA_VISIBLE_DEVICES", names, 1);
}

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

static void share_environment(spank_t spank) {
  if (!atomic_exchange(&shared->has_first, true)) {
    write_entries(spank);
    atomic_store(&shared->is_written, true);
  }
  for (unsigned i = 0; i < kMostPauses && !atomic_load(&shared->is_written); ++i) (void)usleep(kPause);
  for (char* entry = shared->entries; *entry != '\0'; entry += strlen(entry) + 1) {
    char name[256];
    const size_t length = strcspn(entry, "=");
    if (length == 0 || length >= sizeof name || entry[length] == '\0' || is_of_task(entry)) continue;
    (void)snprintf(name, sizeof name, "%.*s", (int)length, entry);
    (void)spank_setenv(spank, name, entry + length + 1, 1);
  }
}

static int start_program(spank_t spank) {
  int words = 0;
  char** program = NULL;
  char** environment = NULL;
  if (spank_get_item(spank, S_JOB_ARGV, &words, &program) != ESPANK_SUCCESS || words < 1) return -1;
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) return -1;
  (void)execvpe(program[0], program, environment);
  slurm_error("site_double: cannot start %s", program[0]);
  return -1;
}

static bool is_ordinary_step(spank_t spank) {
  unsigned step = 0;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step < kFirstSpecialStep;
}

static void be_late(spank_t spank, const char* hook, int count, char** arguments) {
  char wanted[kSize];
  char name[kNumber];
  char node[kSize];
  char own[kSize];
  unsigned seconds = 0;
  if (argument("late", count, arguments) == NULL) return;
  if (spank_getenv(spank, "SITE_LATE", wanted, sizeof wanted) != ESPANK_SUCCESS) return;
  if (spank_getenv(spank, "SLURMD_NODENAME", own, sizeof own) != ESPANK_SUCCESS) return;
  if (sscanf(wanted, "%15s %4095s %u", name, node, &seconds) != 3) return;
  if (strcmp(name, hook) == 0 && strcmp(node, own) == 0) sleep(seconds);
}

// Slurm sets the step's list of GPUs before this hook.
int slurm_spank_user_init(spank_t spank, int count, char** arguments) {
  char ports[kSize];
  be_late(spank, "user_init", count, arguments);
  name_gpus(spank, argument("uuids=", count, arguments));
  if (argument("cray", count, arguments) == NULL || !is_ordinary_step(spank)) return 0;
  if (spank_getenv(spank, "SLURM_STEP_RESV_PORTS", ports, sizeof ports) != ESPANK_SUCCESS) return 0;
  ports[strcspn(ports, "-,")] = '\0';
  (void)spank_setenv(spank, "PMI_CONTROL_PORT", ports, 1);
  return 0;
}

// Slurm sets the list of a task that it binds to GPUs before this hook.
int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  be_late(spank, "task_init", count, arguments);
  name_gpus(spank, argument("uuids=", count, arguments));
  if (!is_ordinary_step(spank)) return 0;
  if (image[0] != '\0') enter_container(spank, count, arguments);
  if (argument("mpibind", count, arguments) != NULL) bind_task(spank);
  if (shared != NULL) share_environment(spank);
  return argument("start", count, arguments) != NULL ? start_program(spank) : 0;
}
