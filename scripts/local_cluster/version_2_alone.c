// Preloaded into slurmd and slurmstepd where the machine has cgroups of version 1, too: they read /proc/PID/cgroup as
// on a machine without, because Slurm's cgroup/v2 refuses one that has both.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*OpenCall)(const char* path, int flags, ...);

static int is_cgroup_file(const char* path) {
  int length = 0;
  return sscanf(path, "/proc/%*[0-9a-z]/cgroup%n", &length) == 0 && length > 0 && path[length] == '\0';
}

// A file that holds the line of version 2 alone of the open file `all`, which it closes.
static int line_of_version_2(int all) {
  char line[4096];
  FILE* const from = fdopen(all, "r");
  const int only = memfd_create("cgroup", MFD_CLOEXEC);
  if (from == NULL || only < 0) return -1;
  while (fgets(line, sizeof line, from) != NULL) {
    if (strncmp(line, "0::", 3) == 0 && write(only, line, strlen(line)) < 0) return -1;
  }
  fclose(from);
  lseek(only, 0, SEEK_SET);
  return only;
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, int) : 0;
  va_end(more);
  const int file = ((OpenCall)dlsym(RTLD_NEXT, "open"))(path, flags, mode);
  return file >= 0 && is_cgroup_file(path) ? line_of_version_2(file) : file;
}
