// How many ranks the root of the real NCCL serves in a second, and what several roots make of it. Needs no GPU.
// SPDX-License-Identifier: Apache-2.0
//
//     root_rate REPEATS ROOTSxRANKS...      root_rate 5 1x64 1x1024 4x1024: RANKS are those of all roots together
//
// Prints a line of JSON for each measurement: from the moment that all ranks may check in to the last answer. The ranks
// are nothing but sockets of this process, so its cores are shared by the roots' threads and all ranks. NCCL's pause of
// more than 256 ranks on a root (NCCL_UID_STAGGER_*) is left out: this is the rate of the root. Where there is no NCCL,
// or one that is not 2.28, whose protocol is known here, it prints {"not_measured": why} and ends with 77.
// SLURM_BOOTSTRAP_NCCL chooses the libnccl.so.2; NCCL_SOCKET_IFNAME is lo.
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "core/exchange/exchanged_values.h"
#include "core/util/text.h"
#include "probe/files.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotMeasured = 77;
constexpr int kKnownVersion = 228;  // 2.28
constexpr std::chrono::seconds kPatience(20);
constexpr std::uint32_t kBootstrapKind = 1;

// What an ncclUniqueId begins with (ncclBootstrapHandle in src/include/bootstrap.h of NCCL; the same since 2.18).
struct RootHandle {
  std::uint64_t magic;
  sockaddr_in address;
};

// Comes before the data on each connection: the magic of the root, the kind of socket, and the size of what follows.
struct Greeting {
  std::uint64_t magic;
  std::uint32_t kind = kBootstrapKind;
  std::uint32_t size;

  bool operator==(const Greeting&) const = default;
};

// NCCL 2.28's own: what a rank sends its root (extInfo in src/bootstrap.cc; 2.29 has a number more), and the answer.
using Address = std::array<char, 28>;       // ncclSocketAddress: room for IPv6
using ConnectInfo = std::array<char, 128>;  // ringConnectInfo: an address, or a handle of a network plugin
struct CheckIn {
  Greeting greeting;
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t root;
  std::int32_t roots;
  Address answer_to;
  ConnectInfo ring;
};
struct Answer {
  Greeting greeting;
  ConnectInfo ring;
};
constexpr std::size_t kCheckInSize = sizeof(Greeting) + 172;  // without what aligns it

template <class To, class From>
void put(To& to, const From& from) {
  static_assert(sizeof(From) <= sizeof(To));
  std::memcpy(to.data(), &from, sizeof from);
}

// A rank's ring address, which the root hands on without a look at it: here the number of the rank.
sockaddr_in ring_address(std::uint32_t rank) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000000U + rank);
  address.sin_port = htons(1);
  return address;
}

// The root that `rank` checks in with.
std::uint32_t root_of_rank(std::uint32_t rank, std::uint32_t ranks, std::uint32_t roots) {
  std::uint32_t root = 0;
  while (root + 1 < roots && bootstrap::rank_of_root(root + 1, ranks, roots) <= rank) ++root;
  return root;
}

struct Rank {
  bootstrap::Descriptor answers;  // where its root connects to
  sockaddr_in address;
  std::uint32_t root;
};

class Step {
 public:
  Step(const std::vector<RootHandle>& roots, std::uint32_t ranks) : roots_(roots) {
    const auto count = static_cast<std::uint32_t>(roots.size());
    for (std::uint32_t rank = 0; rank < ranks && trouble_.empty(); ++rank) {
      listen(root_of_rank(rank, ranks, count));
    }
  }

  // Lets all ranks check in at once. Returns milliseconds to the last answer; only without trouble() they count.
  double run();
  const std::string& trouble() const { return trouble_; }

 private:
  void listen(std::uint32_t root);
  bool check_in(std::uint32_t rank, std::uint32_t rank_there, std::uint32_t root) const;
  void check_in_ranks_of(std::uint32_t root);
  bool take_answer(std::uint32_t rank);

  const std::vector<RootHandle>& roots_;
  std::vector<Rank> ranks_;
  std::atomic<bool> may_begin_{false};
  std::atomic<std::uint32_t> refused_{0};
  Clock::time_point begin_;
  std::string trouble_;
};

void Step::listen(std::uint32_t root) {
  bootstrap::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto address = roots_[root].address;  // the interface that NCCL chose
  address.sin_port = 0;
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  if (::bind(socket.get(), place, size) != 0 || ::listen(socket.get(), 4) != 0 ||
      ::getsockname(socket.get(), place, &size) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) {
    trouble_ = std::string("no socket for a rank: ") + std::strerror(errno);
    return;
  }
  ranks_.push_back({std::move(socket), address, root});
}

// `rank_there`: its number to this root. One message, closed at once, as NCCL does it.
bool Step::check_in(std::uint32_t rank, std::uint32_t rank_there, std::uint32_t root) const {
  CheckIn message{};
  message.greeting = {.magic = roots_[root].magic, .size = kCheckInSize - sizeof message.greeting};
  message.rank = static_cast<std::int32_t>(rank_there);
  message.ranks = static_cast<std::int32_t>(ranks_.size());
  message.root = static_cast<std::int32_t>(root);
  message.roots = static_cast<std::int32_t>(roots_.size());
  put(message.answer_to, ranks_[rank].address);
  put(message.ring, ring_address(rank));
  const bootstrap::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto& address = roots_[root].address;
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         ::send(socket.get(), &message, kCheckInSize, MSG_NOSIGNAL) == static_cast<ssize_t>(kCheckInSize);
}

// The first rank of a root also checks in with the root before it, whose last rank it follows in the ring. There it has
// the number behind that root's last, also where it is rank 0.
void Step::check_in_ranks_of(std::uint32_t root) {
  while (!may_begin_) std::this_thread::yield();
  const auto size = static_cast<std::uint32_t>(ranks_.size());
  const auto count = static_cast<std::uint32_t>(roots_.size());
  for (std::uint32_t rank = bootstrap::rank_of_root(root, size, count); rank < size && ranks_[rank].root == root;
       ++rank) {
    if (!check_in(rank, rank, root)) ++refused_;
    if (count == 1 || rank != bootstrap::rank_of_root(root, size, count)) continue;
    const auto before = (root + count - 1) % count;
    if (!check_in(rank, root == 0 ? size : rank, before)) ++refused_;
  }
}

// Accepted one after the other, in the order of the ranks: the kernel keeps the answers of the others.
bool Step::take_answer(std::uint32_t rank) {
  const bootstrap::Descriptor socket(::accept4(ranks_[rank].answers.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Answer answer{};
  if (::recv(socket.get(), &answer, sizeof answer, MSG_WAITALL) != static_cast<ssize_t>(sizeof answer)) {
    trouble_ = "rank " + std::to_string(rank) + " has no answer of its root after " +
               std::to_string(kPatience.count()) + " s; NCCL_DEBUG=WARN shows what it says";
    return false;
  }
  const auto next = ring_address((rank + 1) % static_cast<std::uint32_t>(ranks_.size()));
  const Greeting greeting{.magic = roots_[ranks_[rank].root].magic, .size = sizeof answer.ring};
  const bool is_right = answer.greeting == greeting && std::memcmp(answer.ring.data(), &next, sizeof next) == 0;
  if (!is_right) trouble_ = "a root gave another answer than the address of the next rank";
  return is_right;
}

double Step::run() {
  std::vector<std::thread> threads;
  for (std::uint32_t root = 0; root < roots_.size() && trouble_.empty(); ++root) {
    threads.emplace_back([this, root] { check_in_ranks_of(root); });
  }
  begin_ = Clock::now();
  may_begin_ = true;
  for (std::uint32_t rank = 0; rank < ranks_.size() && trouble_.empty() && take_answer(rank);) ++rank;
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin_;
  for (auto& thread : threads) thread.join();
  if (refused_ > 0 && trouble_.empty()) trouble_ = std::to_string(refused_) + " ranks could not connect to their root";
  return took.count();
}

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

std::optional<std::vector<RootHandle>> make_roots(const bootstrap::nccl::Functions& nccl, unsigned count) {
  std::vector<RootHandle> roots;
  for (unsigned i = 0; i < count; ++i) {
    bootstrap::nccl::UniqueId id{};
    if (nccl.get_unique_id(&id) != bootstrap::nccl::kSuccess) return std::nullopt;
    std::memcpy(&roots.emplace_back(), &id, sizeof(RootHandle));
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
  Step step(*roots, shape.ranks);
  const auto milliseconds = step.run();
  if (!step.trouble().empty()) {
    (void)std::fprintf(stderr, "root_rate: %u roots, %u ranks: %s\n", shape.roots, shape.ranks, step.trouble().c_str());
    return 1;
  }
  std::printf("{\"nccl\": \"%s\", \"roots\": %u, \"ranks\": %u, \"last_ms\": %.3f}\n",
              bootstrap::nccl::version_text(nccl.version).c_str(), shape.roots, shape.ranks, milliseconds);
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
