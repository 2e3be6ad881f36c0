// Prints the whole environment, one line for each variable with the task's number before it; also linked statically.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

extern char** environ;

int main(void) {
  const char* const rank = getenv("SLURM_PROCID");
  for (char** entry = environ; *entry != NULL; ++entry) {
    for (char* place = *entry; *place != '\0'; ++place) *place = *place == '\n' ? ' ' : *place;
    printf("%s: %s\n", rank == NULL ? "none" : rank, *entry);
  }
  return 0;
}
