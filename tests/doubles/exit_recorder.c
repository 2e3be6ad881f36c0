// slurmd starts this as slurmstepd (slurmd -d FILE). It runs the real one and records how that ended, which no other
// process can know: init adopts slurmstepd. Each adds a line to /tmp/witness.log with its purpose and process id:
// "step 9 signal 11", "spank 11 exit 1". Lines NAME=VALUE of /tmp/witness.env are added to its environment.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // close_range
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char kLog[] = "/tmp/witness.log";
static const char kEnvironment[] = "/tmp/witness.env";

enum { kNotRun = 127 };

static void read_environment(void) {
  FILE* const file = fopen(kEnvironment, "re");
  char* line = NULL;
  size_t size = 0;
  while (file != NULL && getline(&line, &size, file) > 0) {
    line[strcspn(line, "\n")] = '\0';
    char* const entry = strchr(line, '=') != NULL ? strdup(line) : NULL;  // putenv keeps it
    if (entry != NULL) (void)putenv(entry);
  }
  free(line);
  if (file != NULL) (void)fclose(file);
}

// One write(2), so that lines of several do not mix.
static void note(const char* purpose, pid_t process, int status) {
  const bool is_signal = WIFSIGNALED(status);
  char line[128];
  const int length = snprintf(line, sizeof line, "%s %d %s %d\n", purpose, (int)process, is_signal ? "signal" : "exit",
                              is_signal ? WTERMSIG(status) : WEXITSTATUS(status));
  const int file = open(kLog, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, line, (size_t)length) != length) perror(kLog);
  (void)close(file);
}

int main(int count, char** arguments) {
  static char name[] = "slurmstepd";
  const char* const purpose = count > 1 ? arguments[1] : "step";
  read_environment();
  (void)setenv("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin", 0);  // a slurmstepd that runs prologs has no PATH
  const pid_t process = fork();
  if (process < 0) return kNotRun;
  if (process == 0) {
    arguments[0] = name;
    (void)execvp(name, arguments);
    _exit(kNotRun);
  }
  // slurmd waits for the end of these pipes when slurmstepd dies, so this process must not hold them open.
  (void)close_range(0, ~0U, 0);
  int status = 0;
  while (waitpid(process, &status, 0) != process) {
  }
  note(purpose, process, status);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const struct rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  (void)signal(WTERMSIG(status), SIG_DFL);
  (void)raise(WTERMSIG(status));
  return kNotRun;
}
