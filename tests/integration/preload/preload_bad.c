/*
 * A library that does what ours must not do: it prints, opens a file and changes the exit status. The control of tests.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void end_otherwise(void) { _exit(9); }

__attribute__((constructor)) static void enter(void) {
  (void)open("/dev/null", O_RDONLY);
  fprintf(stderr, "here\n");
  atexit(end_otherwise);
}
