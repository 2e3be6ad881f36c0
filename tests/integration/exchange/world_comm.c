/*
 * A communicator of all ranks of the step in four calls: open, communicator, destroy, close. argv[1]: number of roots.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "bootstrap/bootstrap.h"
#include "nccl_double.h" /* nccl.h in a real program */

int main(int argc, char** argv) {
  bootstrap_t* job = NULL;
  ncclComm_t comm = NULL;
  bootstrap_comm_options_t options = BOOTSTRAP_COMM_OPTIONS_INIT;
  if (argc > 1) options.roots = atoi(argv[1]);

  if (bootstrap_open(&job, NULL) != BOOTSTRAP_OK ||
      bootstrap_nccl_comm(job, BOOTSTRAP_WORLD, &options, &comm) != BOOTSTRAP_OK) {
    fprintf(stderr, "%s\n", bootstrap_last_error());
    return 1;
  }
  int rank = -1, size = -1;
  float sum = (float)bootstrap_rank(job);
  ncclCommUserRank(comm, &rank);
  ncclCommCount(comm, &size);
  ncclAllReduce(&sum, &sum, 1, ncclFloat32, ncclSum, comm, NULL);
  printf("rank %d: %d of %d, sum %g\n", bootstrap_rank(job), rank, size, sum);
  ncclCommDestroy(comm);
  bootstrap_close(job);
  return 0;
}
