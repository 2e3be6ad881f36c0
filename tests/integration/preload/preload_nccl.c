/*
 * A rank that makes NCCL communicators as frameworks do: for the tests of the interposed calls, with the NCCL double.
 * SPDX-License-Identifier: Apache-2.0
 *
 * preload_nccl FOLDER CALL [absent=RANK] [device=N] [size=N] [end=N] [_end=N]
 *   CALL is rank, config, scalable, all, split, grouped or polled. The id goes through a file in FOLDER, one for each
 * step. absent=RANK   this rank sleeps for a minute in place of the call late=RANK     this rank sleeps for a second
 * before the call wrong=RANK    this rank makes a call that fails at once, and then sleeps for a minute killed=RANK
 * this rank is killed half a second into its call device=N      the CUDA device that all make current; without it the
 * one of the local rank size=N        the communicator has the first N ranks of the step, the others do nothing end=N
 * after N seconds each rank ends with exit(0), whatever it waits for, and the absent one 4 seconds later; _end=N: with
 * _exit(0) Prints "rank R of N: CODE on device D" on standard output when the call has come back.
 *
 * The same code is a library (PRELOAD_NCCL_LIBRARY), which preload_loader opens as Python opens its modules, and a
 * program with RCCL and HIP (PRELOAD_RCCL).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "id_file.h"

#ifdef PRELOAD_RCCL
int hipSetDevice(int device);
int hipGetDevice(int* device);
#define GPUS "HIP_DOUBLE_DEVICES"
#define cudaGetDevice hipGetDevice
#else
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cudaGetDevice(int* device);
#define GPUS "CUDA_DOUBLE_DEVICES"
#endif

struct order {
  const char* folder;
  const char* how;
  int rank, size, absent, late, wrong, killed, device, end, end_at_once;
};

static int number(const char* name, int otherwise) {
  const char* const text = getenv(name);
  return text == NULL ? otherwise : atoi(text);
}

static int has_gpus(void) { return number(GPUS, 0) > 0; }

/* As the CUDA runtime does it since 12.0: the device's primary context becomes the thread's. */
static void use_device(int device) {
#ifdef PRELOAD_RCCL
  if (hipSetDevice(device) != 0) exit(4);
#else
  void* context = NULL;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, device) != 0 || cuCtxSetCurrent(context) != 0) exit(4);
#endif
}

static void share_id(const struct order* order, ncclUniqueId* id) {
  char path[512];
  int version = 0; /* two copies of NCCL in a process meet by ids of their own */
  if (getenv("PRELOAD_NCCL_ONE_ID") == NULL) ncclGetVersion(&version);
  snprintf(path, sizeof path, "%s/id.%s.%s.%d", order->folder, getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"),
           version);
  if (order->rank == 0) {
    if (ncclGetUniqueId(id) != ncclSuccess) exit(3);
    write_id(path, id);
  }
  read_id(path, id);
}

static ncclResult_t init(const struct order* order, ncclComm_t* comm) {
  ncclUniqueId id;
  share_id(order, &id);
  if (strcmp(order->how, "config") == 0) {
    ncclConfig_t config = {sizeof config, 0xcafebeef, 21400, 1};
    return ncclCommInitRankConfig(comm, order->size, id, order->rank, &config);
  }
  if (strcmp(order->how, "polled") == 0) {
    ncclConfig_t config = {sizeof config, 0xcafebeef, 21400, 0};
    ncclResult_t state = ncclCommInitRankConfig(comm, order->size, id, order->rank, &config);
    while (state == ncclInProgress) {
      usleep(10000);
      if (ncclCommGetAsyncError(*comm, &state) != ncclSuccess) exit(5);
    }
    return state;
  }
  if (strcmp(order->how, "grouped") == 0) {
    ncclGroupStart();
    const ncclResult_t queued = ncclCommInitRank(comm, order->size, id, order->rank);
    const ncclResult_t ended = ncclGroupEnd();
    return queued != ncclSuccess ? queued : ended;
  }
  if (strcmp(order->how, "scalable") == 0) {
    return ncclCommInitRankScalable(comm, order->size, order->rank, 1, &id, NULL);
  }
  return ncclCommInitRank(comm, order->size, id, order->rank == order->wrong ? 99 : order->rank);
}

static void* end_process(void* argument) {
  const struct order* const order = argument;
  sleep((unsigned)(order->end + order->end_at_once));
  if (order->end_at_once > 0) _exit(0);
  exit(0);
}

static void* kill_process(void* argument) {
  usleep(500000);
  kill(getppid(), SIGKILL); /* timeout(1), which is the task; and itself */
  kill(getpid(), SIGKILL);
  return argument;
}

static void* serve(void* argument) {
  pthread_setname_np(pthread_self(), "NCCL Service 0"); /* as NCCL's own are called */
  sleep(60);
  return argument;
}

/* What preload_loader looks for. */
__attribute__((visibility("default"))) int preload_nccl(int count, char** arguments) {
  static struct order order;
  order.rank = number("SLURM_PROCID", 0);
  order.size = number("SLURM_STEP_NUM_TASKS", 1);
  order.absent = order.late = order.wrong = order.killed = -1;
  order.device = number("LOCAL_RANK", number("SLURM_LOCALID", 0));
  if (count < 3) return 2;
  order.folder = arguments[1];
  order.how = arguments[2];
  for (int i = 3; i < count; ++i) {
    const char* const text = arguments[i];
    if (sscanf(text, "absent=%d", &order.absent) != 1 && sscanf(text, "device=%d", &order.device) != 1 &&
        sscanf(text, "late=%d", &order.late) != 1 && sscanf(text, "wrong=%d", &order.wrong) != 1 &&
        sscanf(text, "killed=%d", &order.killed) != 1 && sscanf(text, "size=%d", &order.size) != 1 &&
        sscanf(text, "end=%d", &order.end) != 1 && sscanf(text, "_end=%d", &order.end_at_once) != 1) {
      return 2;
    }
  }
  if (order.rank >= order.size) return 0;
  pthread_t thread;
  const int end = order.end + order.end_at_once;
  if (end > 0 && order.rank == order.absent) return (int)sleep((unsigned)end + 4); /* sees how the step goes on */
  if (end > 0) pthread_create(&thread, NULL, end_process, &order);
  pthread_create(&thread, NULL, serve, NULL);
  if (order.rank == order.killed) pthread_create(&thread, NULL, kill_process, NULL);
  if (has_gpus()) use_device(order.device);
  if (order.rank == order.late) sleep(1);
  const int is_split = strcmp(order.how, "split") == 0;
  ncclComm_t comm = NULL;
  ncclResult_t code = ncclSuccess;
  if (order.rank == order.absent && !is_split) sleep(60);
  if (strcmp(order.how, "all") == 0) {
    ncclComm_t comms[2];
    code = ncclCommInitAll(comms, 2, NULL);
  } else {
    code = init(&order, &comm);
  }
  if (is_split && code == ncclSuccess) {
    ncclComm_t half = NULL;
    if (order.rank == order.absent) sleep(60);
    code = ncclCommSplit(comm, order.rank % 2, order.rank, &half, NULL);
  }
  if (order.rank == order.wrong) sleep(60);
  int device = -1;
  if (has_gpus()) cudaGetDevice(&device);
  printf("rank %d of %d: %d on device %d\n", order.rank, order.size, (int)code, device);
  fflush(stdout);
  if (end > 0) return 0; /* others have ended before, and that is what is looked at */
  return (int)code;
}

#ifndef PRELOAD_NCCL_LIBRARY
int main(int count, char** arguments) { return preload_nccl(count, arguments); }
#endif
