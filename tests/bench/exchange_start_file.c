/*
 * From the start of a process to an id in its hand, through a folder that all ranks see: exchange_start_file FILE, a
 * new name for each step. Rank 0 writes under another name and renames, the others look every 10 ms, as PyTorch's
 * FileStore does. Started by exchange_clock; prints a line of JSON with times in nanoseconds. SPDX-License-Identifier:
 * Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { id_size = 128, most_looks = 6000 };

static int write_id(const char* path) {
  char name[4096];
  char id[id_size];
  memset(id, 'x', sizeof id);
  if (snprintf(name, sizeof name, "%s.new", path) >= (int)sizeof name) return -1;
  const int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0 || write(file, id, sizeof id) != (ssize_t)sizeof id || close(file) != 0) return -1;
  return rename(name, path);
}

/* How often it had to look; negative when there was no whole id in the end. */
static int read_id(const char* path) {
  const struct timespec pause = {0, 10000000};
  char id[id_size + 1];
  for (int looks = 1; looks <= most_looks; ++looks) {
    const int file = open(path, O_RDONLY);
    if (file >= 0) {
      const ssize_t size = read(file, id, sizeof id);
      (void)close(file);
      for (int i = 0; i < id_size; ++i) {
        if (size != id_size || id[i] != 'x') return -1;
      }
      return looks;
    }
    (void)nanosleep(&pause, NULL);
  }
  return -1;
}

int main(int count, char** words) {
  const char* const started = getenv("BENCH_STARTED");
  const char* const rank = getenv("SLURM_PROCID");
  struct timespec ended;
  if (count != 2 || started == NULL || rank == NULL) return 2;
  if (strcmp(rank, "0") == 0 && write_id(words[1]) != 0) {
    perror(words[1]);
    return 1;
  }
  const int looks = read_id(words[1]);
  if (looks < 0) {
    (void)fprintf(stderr, "exchange_start_file: no id in %s\n", words[1]);
    return 1;
  }
  if (clock_gettime(CLOCK_MONOTONIC, &ended) != 0) return 2;
  (void)printf("{\"rank\": %s, \"started\": %s, \"ended\": %lld%09ld, \"looks\": %d}\n", rank, started,
               (long long)ended.tv_sec, ended.tv_nsec, looks);
  return 0;
}
