// A program that ends in a chosen way after an exchange, after none, or with an own PMIx session left open: what Slurm
// makes of each end must not depend on the library.
// SPDX-License-Identifier: Apache-2.0
#include <pmix.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "bootstrap/bootstrap.h"

namespace {

bool do_first(std::string_view what) {
  if (what == "nothing") return true;
  if (what == "pmix") {
    pmix_proc_t self;
    return PMIx_Init(&self, nullptr, 0) == PMIX_SUCCESS;
  }
  bootstrap_t* job = nullptr;
  if (bootstrap_open(&job, nullptr) == BOOTSTRAP_OK && bootstrap_barrier(job) == BOOTSTRAP_OK) {
    if (what == "kept") return true;  // the handle is left open
    bootstrap_close(job);
    return what == "exchange";
  }
  (void)std::fprintf(stderr, "%s\n", bootstrap_last_error());
  return false;
}

// A child without exec, which has all that its parent had, lives on after it.
void leave_child(unsigned microseconds, bool in_own_session) {
  if (::fork() != 0) return;
  if (in_own_session) (void)::setsid();
  (void)::usleep(microseconds);
  ::_exit(0);
}

int end(std::string_view how) {
  if (how == "return") return 0;
  if (how == "exit3") std::exit(3);
  if (how == "_exit") ::_exit(0);
  if (how == "exec") (void)::execl("/bin/true", "true", nullptr);
  if (how == "abort") std::abort();
  if (how == "term") (void)std::raise(SIGTERM);
  if (how == "child") leave_child(600'000, false);
  if (how == "daemon") leave_child(600'000, true);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "thread") std::thread([] { std::exit(0); }).join();
  if (how == "pthread_exit") ::pthread_exit(nullptr);
  if (how == "workers") {
    for (int i = 0; i < 8; ++i) leave_child(50'000, false);
    while (::wait(nullptr) > 0) continue;
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    (void)std::fprintf(stderr, "usage: exchange_ends nothing|exchange|kept|pmix END\n");
    return 2;
  }
  if (!do_first(words[1])) return 9;
  // A lost connection is acted on after a second: somebody must still be at work then.
  const char* rank = std::getenv("SLURM_PROCID");
  if (rank != nullptr && std::strcmp(rank, "0") == 0) {
    const bool is_pmix = std::string_view(words[1]) == "pmix";
    (void)::sleep(is_pmix ? 10 : 2);  // with a session left open the step is killed, on a busy machine later than usual
    if (is_pmix) (void)PMIx_Finalize(nullptr, 0);
    return 0;
  }
  return end(words[2]);
}
