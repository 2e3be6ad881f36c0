// A SPANK plugin that does what ours must not do: the control of the tests that look for this. Its arguments name the
// fault and the hook: overflow=HOOK writes behind its memory, undefined=HOOK shifts too far, leak=HOOK loses
// memory, open=HOOK opens a file, connect=HOOK a connection, hang=HOOK does not return, leave=HOOK leaves a file and a
// process behind, end=HOOK ends the process with success, crash=HOOK by SIGSEGV, fail=HOOK returns -1; HOOK is
// local_user_init, user_init, task_post_fork, task_init or task_exit. With lose=slurmd slurmd
// keeps a descriptor, a socket and memory of each step.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

SPANK_PLUGIN(stray_double, 1)

enum { kBytes = 16, kManyBytes = 1024 * 1024, kSeconds = 60 };

static void overflow(void) {
  volatile char* volatile memory = malloc(kBytes);  // volatile, else the compiler would leave out unused memory
  if (memory == NULL) return;
  memory[kBytes] = 1;
  free((void*)memory);
}

static volatile int result;

static void undefined(void) {
  volatile int distance = 40;
  result = 1 << distance;
}

static void leak(void) {
  char* volatile memory = malloc(kBytes);
  if (memory != NULL) memory[0] = 1;
  memory = NULL;
}

static void open_file(void) {
  const int file = open("/etc/hostname", O_RDONLY | O_CLOEXEC);
  if (file >= 0) close(file);
}

static void connect_somewhere(void) {
  struct sockaddr_un nobody = {.sun_family = AF_UNIX, .sun_path = "/nobody/listens/here"};
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  (void)connect(descriptor, (struct sockaddr*)&nobody, sizeof nobody);
  close(descriptor);
}

static void hang(void) {
  while (result != 40) (void)pause();
}

static void leave(void) {
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/stray_double.%d", (int)getpid());
  const int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) (void)close(file);
  // The child of a threaded process: nothing but calls that may be made in a signal handler (fork(2)).
  if (fork() == 0) {
    (void)setsid();
    for (int descriptor = 0; descriptor < 256; ++descriptor) (void)close(descriptor);
    (void)sleep(kSeconds);
    _exit(0);
  }
}

// Global, else a compiler may leave the allocation out.
static void* volatile lost;

static void lose_at_fork(void) {
  (void)open("/dev/null", O_RDONLY | O_CLOEXEC);
  (void)socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  lost = malloc(kManyBytes);
  if (lost != NULL) memset(lost, 1, kManyBytes);
}

// slurmd calls no hook at the start of a step, but it forks.
static void lose(void) { (void)pthread_atfork(NULL, lose_at_fork, NULL); }

static void end(void) { exit(0); }

// Without a core file, which would be left behind.
static void crash(void) {
  const struct rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  (void)signal(SIGSEGV, SIG_DFL);
  (void)raise(SIGSEGV);
}

static const struct {
  const char* name;
  void (*run)(void);  // NULL: nothing is done, and the hook fails
} kDeeds[] = {
    {"overflow", overflow},
    {"undefined", undefined},
    {"leak", leak},
    {"open", open_file},
    {"connect", connect_somewhere},
    {"hang", hang},
    {"leave", leave},
    {"lose", lose},
    {"end", end},
    {"crash", crash},
    {"fail", NULL},
};

static int act(const char* hook, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    for (size_t deed = 0; deed < sizeof kDeeds / sizeof kDeeds[0]; ++deed) {
      const size_t length = strlen(kDeeds[deed].name);
      if (strncmp(arguments[i], kDeeds[deed].name, length) != 0 || arguments[i][length] != '=') continue;
      if (strcmp(arguments[i] + length + 1, hook) != 0) continue;
      if (kDeeds[deed].run == NULL) return -1;
      kDeeds[deed].run();
    }
  }
  return 0;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)spank;
  return spank_context() == S_CTX_SLURMD ? act("slurmd", count, arguments) : 0;
}

#define HOOK(name)                                                     \
  int slurm_spank_##name(spank_t spank, int count, char** arguments) { \
    (void)spank;                                                       \
    return act(#name, count, arguments);                               \
  }
HOOK(local_user_init)
HOOK(user_init)
HOOK(task_post_fork)
HOOK(task_init)
HOOK(task_exit)
