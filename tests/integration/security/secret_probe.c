/*
 * One rank that gets a unique id, prints it for the test in a disguised form, and keeps it until its input ends.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"

/* The test searches memory, files and logs for the id itself. */
static void print_disguised(const unsigned char* bytes) {
  char text[33];
  int i;
  for (i = 0; i < 16; ++i) (void)snprintf(text + 2 * i, 3, "%02x", bytes[i] ^ 0x5aU);
  (void)printf("id %s\n", text);
  (void)fflush(stdout);
}

int main(int count, char** words) {
  bootstrap_t* job = NULL;
  bootstrap_unique_id_t id;
  int patience = 3000; /* 10 ms each */
  if (count < 2 || bootstrap_open(&job, NULL) != BOOTSTRAP_OK ||
      bootstrap_nccl_unique_ids(job, BOOTSTRAP_WORLD, &id, 1) != BOOTSTRAP_OK) {
    (void)fprintf(stderr, "%s\n", bootstrap_last_error());
    return 1;
  }
  print_disguised((const unsigned char*)id.internal);
  if (count > 2) { /* the control: writes the id into a file, which must never happen */
    FILE* leak = fopen(words[2], "wb");
    if (leak == NULL || fwrite(id.internal, sizeof id.internal, 1, leak) != 1 || fclose(leak) != 0) return 2;
  }
  while (access(words[1], F_OK) != 0 && patience-- > 0) (void)usleep(10000);
  (void)memset(&id, 0, sizeof id);
  bootstrap_close(job);
  return 0;
}
