/*
 * Ranks whose communicator grows or shrinks: for the tests of the interposed calls, with the NCCL double.
 * SPDX-License-Identifier: Apache-2.0
 *
 * preload_grow FOLDER CALL [absent=RANK] [killed=RANK]
 *   CALL is grow (the first half of the step's ranks has a communicator, which the others join), polled (likewise, and
 *   no call blocks), split (the grown one is split) or shrink (the last rank is left out). Unique ids go through files
 *   in FOLDER.
 *   absent=RANK   this rank sleeps for a minute in place of the last call
 *   killed=RANK   this rank is killed half a second into it
 * Prints "rank R of N: CODE, sum S" on standard output: of an all-reduce of R + 1 over the last communicator.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "id_file.h"

static int rank, size, absent = -1, killed = -1;
static const char* folder;

static void check(ncclResult_t code) {
  if (code == ncclSuccess) return;
  printf("rank %d of %d: %d\n", rank, size, (int)code);
  exit((int)code);
}

static const char* id_path(const char* name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s.%s.%s", folder, name, getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
  return path;
}

static void* kill_process(void* argument) {
  usleep(500000);
  kill(getppid(), SIGKILL); /* timeout(1), which is the task; and itself */
  kill(getpid(), SIGKILL);
  return argument;
}

static void be_absent_or_killed(void) {
  pthread_t thread;
  if (rank == absent) sleep(60);
  if (rank == killed) pthread_create(&thread, NULL, kill_process, NULL);
}

static ncclComm_t first_communicator(int ranks) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  if (rank == 0) {
    check(ncclGetUniqueId(&id));
    write_id(id_path("first"), &id);
  }
  read_id(id_path("first"), &id);
  check(ncclCommInitRank(&comm, ranks, id, rank));
  return comm;
}

static ncclComm_t grown(int old_ranks, int is_last, int is_polled) {
  ncclUniqueId id;
  ncclComm_t comm = rank < old_ranks ? first_communicator(old_ranks) : NULL;
  ncclComm_t result = NULL;
  ncclConfig_t config = {sizeof config, 0xcafebeef, 23203, 0};
  if (rank == 0) {
    check(ncclCommGetUniqueId(comm, &id));
    write_id(id_path("grow"), &id);
  }
  if (comm == NULL) read_id(id_path("grow"), &id);
  if (is_last) be_absent_or_killed();
  ncclResult_t state = ncclCommGrow(comm, size, comm == NULL || rank == 0 ? &id : NULL, comm == NULL ? rank : -1,
                                    &result, is_polled ? &config : NULL);
  while (is_polled && state == ncclInProgress) {
    usleep(10000);
    if (ncclCommGetAsyncError(result, &state) != ncclSuccess) exit(5);
  }
  check(state);
  return result;
}

static float sum(ncclComm_t comm) {
  const float own = (float)(rank + 1);
  float all = 0;
  ncclResult_t state = ncclAllReduce(&own, &all, 1, ncclFloat32, ncclSum, comm, NULL);
  while (state == ncclInProgress) {
    usleep(10000);
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) exit(5);
  }
  check(state);
  return all;
}

int main(int count, char** arguments) {
  ncclComm_t comm = NULL;
  if (count < 3) return 2;
  folder = arguments[1];
  const char* const how = arguments[2];
  for (int i = 3; i < count; ++i) {
    if (sscanf(arguments[i], "absent=%d", &absent) != 1 && sscanf(arguments[i], "killed=%d", &killed) != 1) return 2;
  }
  rank = atoi(getenv("SLURM_PROCID"));
  size = atoi(getenv("SLURM_STEP_NUM_TASKS"));
  if (strcmp(how, "shrink") == 0) {
    int left_out = size - 1;
    const ncclComm_t all = first_communicator(size);
    if (rank == left_out) return 0;
    be_absent_or_killed();
    check(ncclCommShrink(all, &left_out, 1, &comm, NULL, 0));
  } else {
    const int is_split = strcmp(how, "split") == 0;
    comm = grown(size / 2, !is_split, strcmp(how, "polled") == 0);
    if (is_split) {
      const ncclComm_t all = comm;
      be_absent_or_killed();
      check(ncclCommSplit(all, rank % 2, rank, &comm, NULL));
    }
  }
  printf("rank %d of %d: 0, sum %.0f\n", rank, size, (double)sum(comm));
  return 0;
}
