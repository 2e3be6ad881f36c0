/*
 * Times a process with the library from its start until it has 128 bytes of each rank: exchange_start [CALLS] makes
 * CALLS calls with one handle; exchange_start COUNT communicators makes NCCL communicators instead. exchange_clock
 * starts it. Prints a line of JSON with times in nanoseconds. Without arguments it makes one call, and the line also
 * has the private memory in KiB before and after the handle is opened; to read it takes time.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L
#include <bootstrap/bootstrap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Private memory: pages that this process has written. Pages of a library that it only reads belong to the file. */
static long private_memory(void) {
  char line[256];
  long value = -1;
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  if (file == NULL) return -1;
  while (fgets(line, sizeof line, file) != NULL && sscanf(line, "Private_Dirty: %ld", &value) != 1) continue;
  (void)fclose(file);
  return value;
}

static int report(const char* what) {
  (void)fprintf(stderr, "exchange_start: %s: %s\n", what, bootstrap_last_error());
  return 1;
}

int main(int count, char** words) {
  int calls = count > 1 ? atoi(words[1]) : 1;
  const int reads_memory = count < 2;
  const char* const started = getenv("BENCH_STARTED");
  const long at_first = reads_memory ? private_memory() : 0; /* the first call allocates what reading needs */
  const long before = reads_memory ? private_memory() : 0;
  bootstrap_t* job = NULL;
  bootstrap_unique_id_t id;
  struct timespec ended;
  if (started == NULL || at_first < 0) return 2;
  if (bootstrap_open(&job, NULL) != BOOTSTRAP_OK) return report("open");
  const long idle = reads_memory ? private_memory() : 0;
  memset(&id, 'x', sizeof id);
  bootstrap_unique_id_t* const all = calloc((size_t)bootstrap_size(job), sizeof id);
  if (all == NULL) return 2;
  for (; calls > 0; --calls) {
    struct ncclComm* comm = NULL;
    const bootstrap_status_t status = count > 2 ? bootstrap_nccl_comm(job, BOOTSTRAP_WORLD, NULL, &comm)
                                                : bootstrap_exchange(job, &id, sizeof id, all);
    if (status != BOOTSTRAP_OK) return report("exchange");
  }
  free(all);
  if (clock_gettime(CLOCK_MONOTONIC, &ended) != 0) return 2;
  (void)printf("{\"rank\": %d, \"started\": %s, \"ended\": %lld%09ld, \"before\": %ld, \"idle\": %ld}\n",
               bootstrap_rank(job), started, (long long)ended.tv_sec, ended.tv_nsec, before, idle);
  if (bootstrap_barrier(job) != BOOTSTRAP_OK) return report("barrier");
  bootstrap_close(job);
  return 0;
}
