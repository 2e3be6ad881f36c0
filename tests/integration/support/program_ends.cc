// A program that ends in a chosen way: program_ends WAY. Slurm's reaction must not depend on the library.
// exchange_ends WAY FIRST first makes an exchange, or none, or leaves a PMIx session open; rank 0 waits for the others.
// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#ifdef WITH_EXCHANGE
#include <dlfcn.h>

#include "bootstrap/bootstrap.h"
#endif

namespace {

// A child without exec, which has all descriptors of its parent, outlives the parent.
void leave_child(unsigned microseconds, bool in_own_session) {
  if (::fork() != 0) return;
  if (in_own_session) (void)::setsid();
  (void)::usleep(microseconds);
  ::_exit(0);
}

int end(std::string_view how) {
  if (how == "exit3") std::exit(3);
  if (how == "_exit") ::_exit(0);
  if (how == "_exit4") ::_exit(4);
  if (how == "exec") (void)::execl("/bin/echo", "echo", "became echo", nullptr);
  if (how == "abort") std::abort();
  if (how == "term") (void)std::raise(SIGTERM);
  if (how == "child") leave_child(600'000, false);
  if (how == "daemon") leave_child(600'000, true);
  if (how == "quick_exit") std::quick_exit(6);
  if (how == "thread") std::thread([] { std::exit(5); }).join();
  if (how == "pthread_exit") ::pthread_exit(nullptr);
  if (how == "workers") {
    for (int i = 0; i < 8; ++i) leave_child(50'000, false);
    while (::wait(nullptr) > 0) continue;
  }
  return 0;
}

#ifdef WITH_EXCHANGE
// libpmix is not linked, since the library closes its session after each call if libpmix is loaded.
int call_pmix(const char* function) {
  void* const library = ::dlopen("libpmix.so.2", RTLD_NOW);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, function);
  using Call = int(void*, void*, std::size_t);
  return found == nullptr ? -1 : reinterpret_cast<Call*>(found)(nullptr, nullptr, 0);
}

bool do_first(std::string_view what) {
  if (what == "nothing") return true;
  if (what == "pmix") return call_pmix("PMIx_Init") == 0;
  bootstrap_t* job = nullptr;
  if (bootstrap_open(&job, nullptr) == BOOTSTRAP_OK && bootstrap_barrier(job) == BOOTSTRAP_OK) {
    if (what == "kept") return true;  // the handle is left open
    bootstrap_close(job);
    return what == "exchange";
  }
  (void)std::fprintf(stderr, "%s\n", bootstrap_last_error());
  return false;
}

// Slurm acts on a lost connection after a second, and a rank must still run then.
int stay(std::string_view first) {
  if (first != "pmix") return static_cast<int>(::sleep(2));
  (void)::sleep(10);  // with a session left open the step is killed, on a busy machine later than usual
  (void)call_pmix("PMIx_Finalize");
  return 0;
}
#endif

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
#ifdef WITH_EXCHANGE
  if (count != 3 || !do_first(words[2])) return 9;
  const char* const rank = std::getenv("SLURM_PROCID");
  if (rank != nullptr && std::string_view(rank) == "0") return stay(words[2]);
#endif
  (void)std::printf("%s\n", words[1]);
  (void)std::fflush(stdout);
  // srun loses the output of a task that a signal ends at once, in two of five steps, also without our libraries.
  (void)::usleep(300'000);
  return end(words[1]);
}
