/*
 * MPI's own view of the nodes: which ranks share one with this rank, and that memory can be shared there. Linked with
 * MPI and nothing else.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words) {
  int rank = 0;
  int size = 0;
  int here = 0;
  int* memory = NULL;
  MPI_Comm node;
  MPI_Win window;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &here);
  int* ranks = malloc((size_t)here * sizeof *ranks);
  MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, node);
  printf("rank %d of %d, with", rank, size);
  for (int i = 0; i < here; ++i) printf(" %d", ranks[i]);
  printf("\n");
  fflush(stdout);
  free(ranks);
  MPI_Win_allocate_shared(sizeof *memory, sizeof *memory, MPI_INFO_NULL, node, &memory, &window);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  MPI_Finalize();
  return 0;
}
