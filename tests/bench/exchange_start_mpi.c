/*
 * Times a process from its start until it has an id, with MPI_Init and CALLS times MPI_Bcast:
 * exchange_start_mpi [CALLS]. exchange_clock starts it. Prints a
 * line of JSON with times in nanoseconds.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int count, char** words) {
  const char* const started = getenv("BENCH_STARTED");
  char id[128];
  struct timespec ended;
  int rank = 0;
  int size = 0;
  int calls = count > 1 ? atoi(words[1]) : 1;
  /* More ranks than cores: Open MPI's waiting ranks would keep the others from running (mpirun sets this by itself). */
  if (setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0) != 0) return 2;
  if (started == NULL || MPI_Init(&count, &words) != MPI_SUCCESS) return 2;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
  memset(id, rank == 0 ? 'x' : ' ', sizeof id);
  for (; calls > 0; --calls) {
    if (MPI_Bcast(id, (int)sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS || id[127] != 'x') return 2;
  }
  if (clock_gettime(CLOCK_MONOTONIC, &ended) != 0) return 2;
  (void)printf("{\"rank\": %d, \"size\": %d, \"started\": %s, \"ended\": %lld%09ld}\n", rank, size, started,
               (long long)ended.tv_sec, ended.tv_nsec);
  (void)MPI_Finalize();
  return 0;
}
