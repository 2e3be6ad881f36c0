// One rank that exchanges over the C interface: rounds of verified values, with a fault at a chosen point on a chosen
// rank.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace {

using std::chrono::steady_clock;

struct Options {
  std::string mode = "exchange";
  int rounds = 1;
  std::size_t bytes = 128;
  int timeout_ms = 0;
  int timed_from = 0;  // the first round with that timeout; earlier ones have the default, since ranks may start late
  int victim = -1;
  std::string fault;    // what happens to the victim
  int before = 0;       // in this round; the number of all rounds: after the last
  int delay_ms = 0;     // into the call
  std::string session;  // "own": the program has a PMIx session open, as after MPI_Init
  int seconds = 30;     // how long a rank sleeps, also after exec
};

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    const char* value = words[i + 1];
    if (name == "--mode") options.mode = value;
    if (name == "--rounds") options.rounds = std::atoi(value);
    if (name == "--bytes") options.bytes = std::strtoul(value, nullptr, 10);
    if (name == "--timeout") options.timeout_ms = std::atoi(value);
    if (name == "--timed-from") options.timed_from = std::atoi(value);
    if (name == "--victim") options.victim = std::atoi(value);
    if (name == "--fault") options.fault = value;
    if (name == "--before") options.before = std::atoi(value);
    if (name == "--delay") options.delay_ms = std::atoi(value);
    if (name == "--session") options.session = value;
    if (name == "--seconds") options.seconds = std::atoi(value);
  }
  return options;
}

// The value of a rank in a round: every byte depends on the rank, the round and its place.
unsigned char byte_at(int rank, int round, std::size_t at) {
  return static_cast<unsigned char>(rank * 7 + round * 13 + static_cast<int>(at) * 3);
}

using Files = std::map<int, std::string>;  // the target of each open descriptor

Files open_files() {
  Files open;
  for (int descriptor = 0; descriptor < 256; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) == -1) continue;
    char target[256];
    const auto length = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target);
    open[descriptor] = std::string(target, length < 0 ? 0 : static_cast<std::size_t>(length));
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET) {
      open[descriptor] += " to port " + std::to_string(ntohs(peer.sin_port));
    }
  }
  return open;
}

// A thread that has ended may still give memory back, for which glibc opens /proc/sys/vm/overcommit_memory once.
Files files_left_open(const Files& before) {
  Files after = open_files();
  for (int tries = 0; tries < 100 && after.size() > before.size(); ++tries) {
    (void)::usleep(10'000);
    after = open_files();
  }
  return after;
}

// Names the files that stayed open, for the message of a failed test.
std::string changes(const Files& before, const Files& after) {
  std::string text;
  for (const auto& [descriptor, target] : after) {
    const auto was = before.find(descriptor);
    if (was == before.end() || was->second != target) text += ", new: " + std::to_string(descriptor) + " " + target;
  }
  return text;
}

// A rank whose call failed stays a while: once a whole node has ended, ranks that began later can no longer query its
// ranks one by one.
constexpr unsigned kStaySeconds = 3;

double milliseconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

Options of_this_run;

// Runs in a signal handler, too: every call here is allowed in one (signal-safety(7)).
void suffer() {
  const std::string_view fault = of_this_run.fault;
  char seconds[] = {static_cast<char>('0' + of_this_run.seconds / 10),
                    static_cast<char>('0' + of_this_run.seconds % 10), '\0'};
  if (fault == "kill") (void)std::raise(SIGKILL);
  if (fault == "stop") (void)std::raise(SIGSTOP);
  if (fault == "abort") std::abort();
  if (fault == "exit") ::_exit(0);
  if (fault == "exec") (void)::execl("/bin/sleep", "sleep", seconds, nullptr);
  if (fault == "sleep") (void)::sleep(static_cast<unsigned>(of_this_run.seconds));
}

void suffer_soon(int milliseconds) {
  if (milliseconds == 0) return suffer();
  (void)std::signal(SIGALRM, [](int) { suffer(); });
  const itimerval once{{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
  (void)::setitimer(ITIMER_REAL, &once, nullptr);
}

bool exchange_round(bootstrap_t* job, int round, std::size_t bytes) {
  const int rank = bootstrap_rank(job);
  const int size = bootstrap_size(job);
  std::vector<unsigned char> mine(bytes);
  std::vector<unsigned char> all(bytes * static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = byte_at(rank, round, i);
  if (bootstrap_exchange(job, mine.data(), bytes, all.data()) != BOOTSTRAP_OK) return false;
  for (int from = 0; from < size; ++from) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (all[static_cast<std::size_t>(from) * bytes + i] != byte_at(from, round, i)) {
        (void)std::fprintf(stderr, "WRONG: rank %d round %d: byte %zu of rank %d\n", rank, round, i, from);
        std::_Exit(9);
      }
    }
  }
  return true;
}

bool open_own_session() {
  void* library = ::dlopen("libpmix.so.2", RTLD_NOW);
  void* found = library == nullptr ? nullptr : ::dlsym(library, "PMIx_Init");
  if (found == nullptr) return false;
  using Init = int(void*, void*, std::size_t);
  return reinterpret_cast<Init*>(found)(nullptr, nullptr, 0) == 0;
}

// Returns null, and prints the reason on standard error, if it cannot be opened.
bootstrap_t* open_job(int timeout_ms) {
  bootstrap_options_t settings = BOOTSTRAP_OPTIONS_INIT;
  settings.timeout_ms = timeout_ms;
  bootstrap_t* job = nullptr;
  if (bootstrap_open(&job, &settings) == BOOTSTRAP_OK) return job;
  (void)std::fprintf(stderr, "%s\n", bootstrap_last_error());
  return nullptr;
}

}  // namespace

int main(int count, char** words) {
  const Options& options = of_this_run = parse(count, words);
  if (options.session == "own" && !open_own_session()) return 5;
  bootstrap_t* const timed = open_job(options.timeout_ms);
  bootstrap_t* const untimed = options.timed_from > 0 ? open_job(0) : timed;
  if (timed == nullptr || untimed == nullptr) return 3;
  const int rank = bootstrap_rank(timed);
  const Files files = open_files();
  const auto start = steady_clock::now();
  for (int round = 0; round < options.rounds; ++round) {
    if (rank == options.victim && round == options.before) suffer_soon(options.delay_ms);
    bootstrap_t* const job = round < options.timed_from ? untimed : timed;
    const auto call = steady_clock::now();
    const bool is_done =
        options.mode == "barrier" ? bootstrap_barrier(job) == BOOTSTRAP_OK : exchange_round(job, round, options.bytes);
    if (!is_done) {
      (void)std::fprintf(stderr, "%s\n", bootstrap_last_error());
      (void)std::printf("rank %d failed in round %d after %.0f ms\n", rank, round, milliseconds_since(call));
      (void)std::fflush(stdout);
      (void)::sleep(kStaySeconds);
      return 4;
    }
  }
  const auto took = milliseconds_since(start);
  const int size = bootstrap_size(timed);
  bootstrap_close(timed);
  if (untimed != timed) bootstrap_close(untimed);
  const Files after = files_left_open(files);
  (void)std::printf("rank %d of %d: %d rounds in %.1f ms, files %zu before and %zu after%s\n", rank, size,
                    options.rounds, took, files.size(), after.size(), changes(files, after).c_str());
  (void)std::fflush(stdout);
  if (rank == options.victim && options.before == options.rounds) suffer_soon(options.delay_ms);
  return 0;
}
