/*
 * Writes the time into BENCH_STARTED, in nanoseconds of CLOCK_MONOTONIC, and executes another program:
 * exchange_clock PROGRAM ARGUMENTS... The start of a program thus includes its loading.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char** words) {
  struct timespec time;
  char text[32];
  if (count < 2 || clock_gettime(CLOCK_MONOTONIC, &time) != 0) return 2;
  (void)snprintf(text, sizeof text, "%lld%09ld", (long long)time.tv_sec, time.tv_nsec);
  if (setenv("BENCH_STARTED", text, 1) != 0) return 2;
  (void)execvp(words[1], words + 1);
  perror(words[1]);
  return 127;
}
