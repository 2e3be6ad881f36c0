// A SPANK plugin that does to tasks what pyxis and enroot's hook for PyTorch do: in task_init the task gets a mount
// namespace of its own, in which folders of the host are hidden, and the variables of the image. Arguments:
// hide=FOLDER, what the container has not; NAME=VALUE, a variable of the image. RANK and LOCAL_RANK are set from
// Slurm's, as pyxis does for images with PYTORCH_VERSION.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis_double, 1)

static const char kHide[] = "hide=";

static bool write_file(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
  close(file);
  return is_written;
}

// As a container without a privileged helper is entered: the user stays the same, and root becomes the overflow user.
static bool enter(void) {
  char map[64];
  (void)snprintf(map, sizeof map, "%u %u 1", geteuid(), geteuid());
  (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // root forked this process: its files in /proc would be root's
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return write_file("/proc/self/uid_map", map) && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void copy(spank_t spank, const char* from, const char* to) {
  char value[64];
  if (spank_getenv(spank, from, value, sizeof value) == ESPANK_SUCCESS) (void)spank_setenv(spank, to, value, 1);
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  if (!enter()) slurm_error("pyxis_double: this machine has no namespaces for users");
  for (int i = 0; i < count; ++i) {
    char* const equals = strchr(arguments[i], '=');
    if (equals == NULL) continue;
    if (strncmp(arguments[i], kHide, strlen(kHide)) == 0) {
      if (mount("none", equals + 1, "tmpfs", 0, NULL) != 0) slurm_error("pyxis_double: %s stays in sight", equals + 1);
      continue;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - arguments[i]), arguments[i]);
    (void)spank_setenv(spank, name, equals + 1, 1);
  }
  copy(spank, "SLURM_PROCID", "RANK");
  copy(spank, "SLURM_LOCALID", "LOCAL_RANK");
  return 0;
}
