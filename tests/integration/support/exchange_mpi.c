/*
 * Exchanges before, between and after MPI's own session: each letter of the first argument is an action.
 * x: exchange, I: MPI_Init, B: MPI_Barrier, F: MPI_Finalize, L: MPI_Finalize that leaves PMIx late in odd ranks,
 * o: bootstrap_open (else the first action), p: PMIx_Init and q: PMIx_Finalize, in steps without calls of
 * our library.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"

static int exchange(bootstrap_t* job) {
  const int size = bootstrap_size(job);
  static int round = 0;
  int mine = bootstrap_rank(job) * 1000 + ++round;
  int* all = malloc((size_t)size * sizeof *all);
  int is_right = bootstrap_exchange(job, &mine, sizeof mine, all) == BOOTSTRAP_OK;
  if (!is_right) fprintf(stderr, "%s\n", bootstrap_last_error());
  for (int rank = 0; is_right && rank < size; ++rank) is_right = all[rank] == rank * 1000 + round;
  free(all);
  return is_right;
}

/* PMIx_Init or PMIx_Finalize of the copy that MPI uses. */
static int call_pmix(const char* name) {
  void* library = dlopen("libpmix.so.2", RTLD_NOW);
  int (*init)(void*, void*, size_t) = NULL;
  int (*finalize)(void*, size_t) = NULL;
  void* found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) return 0;
  if (strcmp(name, "PMIx_Finalize") == 0) {
    *(void**)&finalize = found;
    return finalize(NULL, 0) == 0;
  }
  *(void**)&init = found;
  return init(NULL, NULL, 0) == 0;
}

static int is_late = 0;

/* Exported, so MPI's component calls this one; our library calls libpmix itself. */
__attribute__((visibility("default"))) int PMIx_Finalize(const void* information, size_t count);
int PMIx_Finalize(const void* information, size_t count) {
  void* library = dlopen("libpmix.so.2", RTLD_NOLOAD | RTLD_LAZY);
  int (*finalize)(const void*, size_t) = NULL;
  void* found = library == NULL ? NULL : dlsym(library, "PMIx_Finalize");
  if (found == NULL) return -1;
  *(void**)&finalize = found;
  if (is_late) usleep(200000);
  const int result = finalize(information, count);
  dlclose(library); /* MPI expects to be the last user of PMIx */
  return result;
}

static int do_one(char what, bootstrap_t** job) {
  switch (what) {
    case 'o':
      return bootstrap_open(job, NULL) == BOOTSTRAP_OK;
    case 'p':
      return call_pmix("PMIx_Init");
    case 'q':
      return call_pmix("PMIx_Finalize");
    case 'x':
      return exchange(*job);
    case 'I':
      return MPI_Init(NULL, NULL) == MPI_SUCCESS;
    case 'B':
      return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
    case 'L':
      is_late = bootstrap_rank(*job) % 2;
      return MPI_Finalize() == MPI_SUCCESS;
    case 'F':
      return MPI_Finalize() == MPI_SUCCESS;
    default:
      return 0;
  }
}

int main(int count, char** words) {
  bootstrap_t* job = NULL;
  usleep(300000); /* Slurm 22.05 loses a message of MPI_Init that arrives while another node still starts its tasks */
  if (count != 2) return 3;
  if (strpbrk(words[1], "op") == NULL && bootstrap_open(&job, NULL) != BOOTSTRAP_OK) return 3;
  for (const char* what = words[1]; *what != '\0'; ++what) {
    if (!do_one(*what, &job)) {
      fprintf(stderr, "rank %d failed in %s of %s\n", job == NULL ? -1 : bootstrap_rank(job), what, words[1]);
      return 4;
    }
  }
  if (job != NULL) bootstrap_close(job);
  return 0;
}
