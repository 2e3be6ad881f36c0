// How many ranks the root of the real NCCL serves in a second, and what several roots make of it. Needs no GPU.
// SPDX-License-Identifier: Apache-2.0
//
//     root_rate REPEATS ROOTSxRANKS...      root_rate 5 1x64 1x1024 4x1024: RANKS are those of all roots together
//
// Prints a line of JSON for each measurement: from the moment that all ranks may check in to the last answer, which
// holds the right address. The ranks are sockets of this process (root_rate_ranks), so its cores are shared by the
// roots' threads and all ranks. Where there is no NCCL, or one that is not 2.28, whose protocol is known here, it
// prints {"not_measured": why} and ends with 77. SLURM_BOOTSTRAP_NCCL chooses the libnccl.so.2; NCCL_SOCKET_IFNAME is
// lo.
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "core/util/text.h"
#include "root_rate_ranks.h"

namespace {

constexpr int kNotMeasured = 77;
constexpr int kKnownVersion = 228;  // 2.28

struct Shape {
  unsigned roots = 0;
  unsigned ranks = 0;
};

std::optional<Shape> read_shape(const char* word) {
  Shape shape;
  char rest = 0;
  if (std::sscanf(word, "%ux%u%c", &shape.roots, &shape.ranks, &rest) != 2) return std::nullopt;
  const bool is_possible = shape.roots >= 1 && shape.roots <= shape.ranks && shape.ranks >= 2 && shape.ranks <= 16384;
  return is_possible ? std::optional(shape) : std::nullopt;
}

int not_measured(const std::string& why) {
  std::printf("{%s}\n", bootstrap::json_member("not_measured", bootstrap::json_string(why)).c_str());
  return kNotMeasured;
}

// Listeners of all ranks, and the connections that are on their way.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::optional<std::vector<bench::RootHandle>> make_roots(const bootstrap::nccl::Functions& nccl, unsigned count) {
  std::vector<bench::RootHandle> roots;
  for (unsigned i = 0; i < count; ++i) {
    bootstrap::nccl::UniqueId id{};
    if (nccl.get_unique_id(&id) != bootstrap::nccl::kSuccess) return std::nullopt;
    std::memcpy(&roots.emplace_back(), &id, sizeof(bench::RootHandle));
    if (roots.back().address.sin_family != AF_INET) return std::nullopt;
  }
  return roots;
}

int measure(const bootstrap::nccl::Functions& nccl, const Shape& shape) {
  const auto roots = make_roots(nccl, shape.roots);
  if (!roots) {
    (void)std::fprintf(stderr, "root_rate: ncclGetUniqueId gave no root with an IPv4 address\n");
    return 1;
  }
  const auto times = bench::check_in_all(*roots, shape.ranks);
  if (!times.trouble.empty()) {
    (void)std::fprintf(stderr, "root_rate: %u roots, %u ranks: %s\n", shape.roots, shape.ranks, times.trouble.c_str());
    return 1;
  }
  std::printf(
      "{\"nccl\": \"%s\", \"roots\": %u, \"ranks\": %u, \"answers\": %zu, \"first_ms\": %.3f, \"last_ms\": %.3f, "
      "\"ranks_per_second\": %.0f, \"cores\": %ld}\n",
      bootstrap::nccl::version_text(nccl.version).c_str(), shape.roots, shape.ranks, times.answers, times.first_ms,
      times.last_ms, shape.ranks / times.last_ms * 1000, ::sysconf(_SC_NPROCESSORS_ONLN));
  (void)std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const int repeats = count > 2 ? std::atoi(words[1]) : 0;
  std::vector<Shape> shapes;
  for (int i = 2; i < count; ++i) {
    if (const auto shape = read_shape(words[i]); shape) shapes.push_back(*shape);
  }
  if (repeats < 1 || static_cast<int>(shapes.size()) != count - 2) {
    (void)std::fprintf(stderr, "usage: root_rate REPEATS ROOTSxRANKS...\n");
    return 2;
  }
  (void)::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  (void)::unsetenv("NCCL_COMM_ID");  // with it there is no root
  const char* const library = ::getenv("SLURM_BOOTSTRAP_NCCL");
  const auto nccl = bootstrap::nccl::load(library == nullptr ? "" : library);
  if (!nccl) return not_measured(nccl.error().message);
  if ((*nccl)->version / 100 != kKnownVersion) {
    return not_measured("libnccl " + bootstrap::nccl::version_text((*nccl)->version) + " is not 2.28");
  }
  allow_many_files();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (const auto& shape : shapes) {
      if (const int status = measure(**nccl, shape); status != 0) return status;
    }
  }
  return 0;
}
