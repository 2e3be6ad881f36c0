// A rank whose children try to take part: one that is forked, also in the midst of a call, and one that is exec'd then.
// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "bootstrap/bootstrap.h"

namespace {

void show(const char* who, bootstrap_t* job) {
  const bool is_done = bootstrap_barrier(job) == BOOTSTRAP_OK;
  (void)std::printf("%s: %s\n", who, is_done ? "success" : bootstrap_last_error());
  (void)std::fflush(stdout);
}

void wait_for(const char* who, pid_t child) {
  int status = 0;
  (void)::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) (void)std::printf("%s: killed by signal %d\n", who, WTERMSIG(status));
}

void show_in_child(const char* who, bootstrap_t* job) {
  (void)std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::alarm(5);
    show(who, job);
    ::_exit(0);
  }
  wait_for(who, child);
}

void list_files_of_child() {
  (void)std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::execl("/bin/ls", "ls", "-l", "/proc/self/fd", nullptr);
    ::_exit(1);
  }
  wait_for("ls", child);
}

}  // namespace

int main() {
  bootstrap_t* job = nullptr;
  if (bootstrap_open(&job, nullptr) != BOOTSTRAP_OK) {
    (void)std::fprintf(stderr, "%s\n", bootstrap_last_error());
    return 3;
  }
  show("rank before", job);
  if (bootstrap_rank(job) == 0) {
    show_in_child("child between", job);
    std::thread call([job] { show("rank meanwhile", job); });
    (void)::usleep(300'000);
    show_in_child("child in the midst", job);
    list_files_of_child();
    call.join();
  } else {
    (void)::sleep(1);  // so that rank 0 waits in its call
    show("rank meanwhile", job);
  }
  show("rank after", job);
  bootstrap_close(job);
  return 0;
}
