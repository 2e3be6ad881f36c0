/*
 * A process that is not a rank of a step but has a rank's environment tries to connect to the PMIx server and to read
 * values: pmix_visitor ENVIRONMENT KEY...; ENVIRONMENT is a file like /proc/PID/environ. Prints "refused STATUS", or
 * "in" and the bytes of rank 0's values.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 1 << 20 };

static int take_environment(const char* path) {
  static char text[kMost];
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return -1;
  const size_t size = fread(text, 1, sizeof text - 1, file);
  (void)fclose(file);
  for (size_t at = 0; at < size; at += strlen(text + at) + 1) {
    if (strncmp(text + at, "PMIX_", 5) == 0 && putenv(text + at) != 0) return -1;
  }
  return 0;
}

/* Prints the value as hexadecimal digits, or the status in its place. */
static void show_value(const char* name_space, const char* key) {
  pmix_proc_t rank;
  pmix_value_t* value = NULL;
  PMIX_LOAD_PROCID(&rank, name_space, 0);
  const pmix_status_t status = PMIx_Get(&rank, key, NULL, 0, &value);
  if (status != PMIX_SUCCESS) {
    (void)printf(" %d", status);
    return;
  }
  (void)printf(" ");
  const char* const bytes = value->type == PMIX_STRING ? value->data.string : value->data.bo.bytes;
  const size_t size = value->type == PMIX_STRING ? strlen(bytes) : value->data.bo.size;
  for (size_t i = 0; i < size; ++i) (void)printf("%02x", (unsigned char)bytes[i]);
  PMIX_VALUE_RELEASE(value);
}

int main(int count, char** words) {
  pmix_proc_t self;
  if (count < 2 || take_environment(words[1]) != 0) return 2;
  (void)alarm(20); /* a server that does not answer lets no process in */
  const pmix_status_t status = PMIx_Init(&self, NULL, 0);
  if (status != PMIX_SUCCESS) {
    (void)printf("refused %d\n", status);
    return 1;
  }
  (void)printf("in");
  for (int i = 2; i < count; ++i) show_value(self.nspace, words[i]);
  (void)printf("\n");
  return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 3;
}
