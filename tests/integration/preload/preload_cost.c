/*
 * Times a trivial program from its start to its end, with each library preloaded in turn.
 * SPDX-License-Identifier: Apache-2.0
 *
 * preload_cost ROUNDS PROGRAM LIBRARY...   LIBRARY is a path, or - for none. Prints one line for each round: the
 * microseconds with each of them, in the order given. Each round begins with the next library.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { max_variables = 1024 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Microseconds; negative when the program did not start or did not end well. */
static double run(char* program, const char* library) {
  static char entry[4096];
  char* variables[max_variables + 2];
  size_t count = 0;
  for (char** at = environ; *at != NULL && count < max_variables; ++at) {
    if (strncmp(*at, "LD_PRELOAD=", 11) != 0) variables[count++] = *at;
  }
  if (strcmp(library, "-") != 0) {
    snprintf(entry, sizeof entry, "LD_PRELOAD=%s", library);
    variables[count++] = entry;
  }
  variables[count] = NULL;
  char* arguments[] = {program, NULL};
  pid_t process;
  int status = 1;
  const double start = now();
  if (posix_spawn(&process, program, NULL, NULL, arguments, variables) != 0) return -1;
  if (waitpid(process, &status, 0) != process || status != 0) return -1;
  return now() - start;
}

int main(int count, char** arguments) {
  enum { max_ways = 8 };
  const int ways = count - 3;
  const int rounds = count > 3 ? atoi(arguments[1]) : 0;
  if (rounds < 1 || ways > max_ways) return 2;
  for (int round = -1; round < rounds; ++round) { /* the first round only warms up */
    double times[max_ways];
    for (int step = 0; step < ways; ++step) {
      const int way = (step + round + 1) % ways;
      times[way] = run(arguments[2], arguments[3 + way]);
      if (times[way] < 0) return 1;
    }
    for (int way = 0; round >= 0 && way < ways; ++way) printf(way == 0 ? "%.1f" : " %.1f", times[way]);
    if (round >= 0) printf("\n");
  }
  return 0;
}
