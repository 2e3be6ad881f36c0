// Prints the number of threads that OpenMP would use, and the default device of a program: `omp_threads`.
// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  const char* const rank = getenv("SLURM_PROCID");
  const char* const list = getenv("CUDA_VISIBLE_DEVICES");
  printf("%s: %d threads, GPUs %s\n", rank == NULL ? "none" : rank, omp_get_max_threads(), list == NULL ? "all" : list);
  return 0;
}
