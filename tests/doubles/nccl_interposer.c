/*
 * Functions with the names of NCCL's that nobody may call. With NCCL_INTERPOSER_MARKED it also has the name by which
 * libbootstrap knows another copy of itself; without, it passes for an NCCL that is too old. With
 * NCCL_INTERPOSER_UNDEFINED it cannot be loaded, as an NCCL for a newer CUDA.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef NCCL_INTERPOSER_MARKED
EXPORT int bootstrap_version(void);
int bootstrap_version(void) { return 0; }
EXPORT int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  (void)version;
  abort();
}
#else
EXPORT int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = 21003;
  return 0;
}
#endif

EXPORT int ncclGetUniqueId(void* id);
int ncclGetUniqueId(void* id) {
  (void)id;
  abort();
}

EXPORT int ncclCommInitRank(void);
#ifdef NCCL_INTERPOSER_UNDEFINED
extern int cudaOfTomorrow(void);
int ncclCommInitRank(void) { return cudaOfTomorrow(); }
#else
int ncclCommInitRank(void) { abort(); }
#endif
