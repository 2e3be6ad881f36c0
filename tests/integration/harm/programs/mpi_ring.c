// An MPI program as sites run it: sums the ranks, finds the ranks on its node, and takes a GPU by its place among them.
// With a number as argument, this rank ends with status 3.
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kFailed = 3, kEntries = 16 };

// Slurm 22.05 loses a message of MPI_Init that arrives while another node still starts its tasks.
const struct timespec kLaunch = {0, 300000000};

int main(int count, char** arguments) {
  (void)nanosleep(&kLaunch, NULL);
  MPI_Init(&count, &arguments);
  int rank = 0;
  int size = 0;
  int sum = 0;
  int local = 0;
  MPI_Comm node;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local);
  const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
  char list[256] = "";
  if (visible != NULL) (void)snprintf(list, sizeof list, "%s", visible);
  char* entries[kEntries];
  int gpus = 0;
  char* rest = NULL;
  for (char* word = strtok_r(list, ",", &rest); word != NULL && gpus < kEntries; word = strtok_r(NULL, ",", &rest))
    entries[gpus++] = word;
  printf("rank %d of %d, sum %d, local %d, GPU %s\n", rank, size, sum, local,
         gpus == 0 ? "none" : entries[local % gpus]);
  (void)fflush(stdout);
  MPI_Finalize();
  return count > 1 && strtol(arguments[1], NULL, 10) == rank ? kFailed : 0;
}
