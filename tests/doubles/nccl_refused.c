/*
 * A library with NCCL's names that is too old to be used. With NCCL_REFUSED_UNDEFINED it cannot be loaded, as an NCCL
 * for a newer CUDA.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = 21003;
  return 0;
}

EXPORT int ncclGetUniqueId(void* id);
int ncclGetUniqueId(void* id) {
  (void)id;
  abort();
}

EXPORT int ncclCommInitRank(void);
#ifdef NCCL_REFUSED_UNDEFINED
extern int cudaOfTomorrow(void);
int ncclCommInitRank(void) { return cudaOfTomorrow(); }
#else
int ncclCommInitRank(void) { abort(); }
#endif
