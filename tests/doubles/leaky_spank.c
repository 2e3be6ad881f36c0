// A SPANK plugin that loses what a plugin can lose, for the control of the tests that look for it: with each step
// slurmd keeps a descriptor, a socket and memory, and each task leaves a file and a process behind.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pthread.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

SPANK_PLUGIN(leaky_double, 1)

enum {
  kBytes = 1024 * 1024,
  kSeconds = 60,  // that a process stays
};

// What is lost has to be reachable for ever, or a compiler may leave the allocation out.
static void* volatile lost;

static void lose(void) {
  (void)open("/dev/null", O_RDONLY | O_CLOEXEC);
  (void)socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  lost = malloc(kBytes);
  if (lost != NULL) memset(lost, 1, kBytes);
}

// slurmd calls no hook when it starts a step, but it forks.
int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  return spank_context() == S_CTX_SLURMD ? -pthread_atfork(NULL, lose, NULL) : 0;
}

// In slurmstepd, as root.
int slurm_spank_task_exit(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/leaky_double.%d", (int)getpid());
  const int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) (void)close(file);
  // The child of a threaded process: nothing but calls that may be made in a signal handler (fork(2)).
  if (fork() == 0) {
    (void)setsid();
    for (int descriptor = 0; descriptor < 256; ++descriptor) (void)close(descriptor);
    (void)sleep(kSeconds);
    _exit(0);
  }
  return 0;
}
