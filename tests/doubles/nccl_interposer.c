/*
 * Functions with the names of NCCL's that nobody may call. With NCCL_INTERPOSER_MARKED it also has the name by which
 * libbootstrap knows another copy of itself; without, it passes for an NCCL that is too old.
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
int ncclCommInitRank(void) { abort(); }
