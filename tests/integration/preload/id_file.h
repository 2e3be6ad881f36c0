/*
 * How the ranks of preload_nccl and preload_grow get a unique id from each other: by a file that appears as a whole.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_INTEGRATION_PRELOAD_ID_FILE_H
#define TESTS_INTEGRATION_PRELOAD_ID_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "nccl_double.h"

static void write_id(const char* path, const ncclUniqueId* id) {
  char fresh[600];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE* const file = fopen(fresh, "w");
  if (file == NULL || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 || rename(fresh, path) != 0) exit(3);
}

static void read_id(const char* path, ncclUniqueId* id) {
  for (int tries = 0; tries < 1000; ++tries) {
    FILE* const file = fopen(path, "r");
    if (file != NULL) {
      const size_t count = fread(id, sizeof *id, 1, file);
      fclose(file);
      if (count == 1) return;
    }
    usleep(10000);
  }
  exit(3);
}

#endif /* TESTS_INTEGRATION_PRELOAD_ID_FILE_H */
