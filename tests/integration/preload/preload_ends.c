/*
 * The ways in which a program ends, for the test that a preloaded library changes none of them: preload_ends WAY.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* end_with_5(void* argument) {
  usleep(20000);
  exit(5);
  return argument;
}

static void fork_children(int count, int how) {
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child != 0) continue;
    if (how == 0) exit(0);
    _exit(0);
  }
  while (wait(NULL) > 0) {
  }
}

int main(int count, char** arguments) {
  const char* const way = count > 1 ? arguments[1] : "";
  printf("%s\n", way);
  fflush(stdout);
  /* srun loses what a task printed that a signal ends at once: two times of five, without any library of ours. */
  const int is_by_signal = strcmp(way, "abort") == 0 || strcmp(way, "sigterm") == 0;
  if (is_by_signal) usleep(300000);
  if (strcmp(way, "return") == 0) return 0;
  if (strcmp(way, "exit") == 0) exit(3);
  if (strcmp(way, "_exit") == 0) _exit(0);
  if (strcmp(way, "_exit4") == 0) _exit(4);
  if (strcmp(way, "exec") == 0) execl("/bin/echo", "echo", "became echo", (char*)NULL);
  if (strcmp(way, "abort") == 0) abort();
  if (strcmp(way, "sigterm") == 0) raise(SIGTERM);
  if (strcmp(way, "fork") == 0) fork_children(1, 0);
  if (strcmp(way, "forks") == 0) fork_children(8, 1);
  if (strcmp(way, "quick") == 0) quick_exit(6);
  if (strcmp(way, "daemon") == 0) {
    if (fork() == 0) { /* outlives the rank, and is Slurm's to end */
      setsid();
      fclose(stdout);
      fclose(stderr);
      usleep(300000);
      _exit(0);
    }
    return 0;
  }
  if (strcmp(way, "thread") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, end_with_5, NULL);
    pthread_exit(NULL);
  }
  return 0;
}
