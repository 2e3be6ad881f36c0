/*
 * A library with NCCL's names that is too old to use. With NCCL_REFUSED_UNDEFINED it cannot be loaded, like an NCCL
 * for a newer CUDA. With NCCL_REFUSED_ENDLESS its constructor does not return.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = 21003;
  return 0;
}

#ifdef NCCL_REFUSED_ENDLESS
__attribute__((constructor)) static void wait_for_ever(void) {
  for (;;) (void)pause();
}
#endif

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
