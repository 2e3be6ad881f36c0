// A program that speaks PMI-1 itself, as Intel MPI and MPICH do, and exchanges with the library, in the order of its
// words: "own" is a round of its own, "ours" one of the library, "late" a pause of rank 1 longer than a deadline,
// "subreaper" makes it one, as process 1 of a container is. At the end it prints what the library has left in it.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"

enum { kTimeoutMs = 2000, kMostRanks = 1024, kSignals = 65, kAlarmSeconds = 1000000 };

static volatile sig_atomic_t child_signals = 0;
static void count_child(int signal) {
  (void)signal;
  ++child_signals;
}

static int count_entries(const char* path) {
  DIR* folder = opendir(path);
  int count = 0;
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) (void)closedir(folder);
  return count;
}

static int count_object(struct dl_phdr_info* object, size_t size, void* count) {
  (void)object;
  (void)size;
  ++*(int*)count;
  return 0;
}

struct traces {
  int threads, files, objects;
  struct sigaction handlers[kSignals];
};

static struct traces look(void) {
  struct traces now;
  memset(&now, 0, sizeof now);
  now.threads = count_entries("/proc/self/task");
  now.files = count_entries("/proc/self/fd");
  (void)dl_iterate_phdr(count_object, &now.objects);
  for (int signal = 1; signal < kSignals; ++signal) (void)sigaction(signal, NULL, &now.handlers[signal]);
  return now;
}

// "threads 0, files 0, objects 0, handlers 0, children 0, signals 0": what there is more than before.
static void report(int rank, const struct traces* before) {
  const struct traces now = look();
  int handlers = 0;
  for (int signal = 1; signal < kSignals; ++signal) {
    handlers += now.handlers[signal].sa_handler != before->handlers[signal].sa_handler;
  }
  const int has_child = waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
  (void)printf("rank %d left: threads %d, files %d, objects %d, handlers %d, children %d, signals %d, alarm %d\n", rank,
               now.threads - before->threads, now.files - before->files, now.objects - before->objects, handlers,
               has_child, (int)child_signals, alarm(0) > kAlarmSeconds / 2);
}

static void* pmi = NULL;
typedef int (*take_int)(int*);
typedef int (*take_text)(const char*);
typedef int (*take_texts)(const char*, const char*, const char*);
typedef int (*fill_text)(char*, int);
typedef int (*get_text)(const char*, const char*, char*, int);
typedef int (*take_nothing)(void);

// One round over PMI-1: a key of each rank, a barrier, all values looked at.
static int own_round(int round) {
  int ignored = 0, rank = 0, size = 0, code = 0;
  char space[256], key[64], value[1024], wanted[64];
  if (pmi == NULL) pmi = dlopen("libpmi.so.0", RTLD_NOW | RTLD_GLOBAL);
  if (pmi == NULL) return -1;
  code |= ((take_int)dlsym(pmi, "PMI_Init"))(&ignored) | ((take_int)dlsym(pmi, "PMI_Get_rank"))(&rank) |
          ((take_int)dlsym(pmi, "PMI_Get_size"))(&size) |
          ((fill_text)dlsym(pmi, "PMI_KVS_Get_my_name"))(space, sizeof space);
  (void)snprintf(key, sizeof key, "own.%d.%d", round, rank);
  (void)snprintf(value, sizeof value, "%d/%d", round, rank);
  code |= ((take_texts)dlsym(pmi, "PMI_KVS_Put"))(space, key, value) |
          ((take_text)dlsym(pmi, "PMI_KVS_Commit"))(space) | ((take_nothing)dlsym(pmi, "PMI_Barrier"))();
  for (int other = 0; code == 0 && other < size; ++other) {
    (void)snprintf(key, sizeof key, "own.%d.%d", round, other);
    (void)snprintf(wanted, sizeof wanted, "%d/%d", round, other);
    code |= ((get_text)dlsym(pmi, "PMI_KVS_Get"))(space, key, value, sizeof value) | strcmp(value, wanted);
  }
  return code | ((take_nothing)dlsym(pmi, "PMI_Finalize"))();
}

static int our_round(bootstrap_t* job, int round) {
  static int all[kMostRanks];
  const int mine = 1000 * round + bootstrap_rank(job);
  if (bootstrap_exchange(job, &mine, sizeof mine, all) != BOOTSTRAP_OK) return -1;
  for (int rank = 0; rank < bootstrap_size(job); ++rank) {
    if (all[rank] != 1000 * round + rank) return -2;
  }
  return 0;
}

static double now_ms(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

int main(int count, char** words) {
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  bootstrap_options_t options = BOOTSTRAP_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  bootstrap_t* job = NULL;
  if (bootstrap_open(&job, &options) != BOOTSTRAP_OK) {
    (void)fprintf(stderr, "%s\n", bootstrap_last_error());
    return 2;
  }
  (void)signal(SIGCHLD, count_child);
  (void)alarm(kAlarmSeconds);
  const struct traces before = look();
  int failures = 0;
  for (int i = 1; i < count; ++i) {
    if (strcmp(words[i], "subreaper") == 0) {
      failures += prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0;
      continue;
    }
    const int is_late = strcmp(words[i], "late") == 0;
    if (is_late || strcmp(words[i], "wait") == 0) {
      if (is_late == (bootstrap_rank(job) == 1)) (void)usleep((kTimeoutMs + 1000) * 1000);
      continue;
    }
    const double begin = now_ms();
    const int is_own = strcmp(words[i], "own") == 0;
    const int code = is_own ? own_round(i) : our_round(job, i);
    failures += code != 0;
    (void)printf("rank %d %s %s after %.0f ms%s%s\n", bootstrap_rank(job), words[i], code == 0 ? "right" : "failed",
                 now_ms() - begin, code == 0 || is_own ? "" : ": ", code == 0 || is_own ? "" : bootstrap_last_error());
  }
  report(bootstrap_rank(job), &before);
  bootstrap_close(job);
  return failures != 0;
}
