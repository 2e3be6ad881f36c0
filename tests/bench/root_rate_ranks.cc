// Ranks that are nothing but sockets: each checks in with its NCCL root and waits for the address of the next rank.
// SPDX-License-Identifier: Apache-2.0
#include "root_rate_ranks.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "core/exchange/exchanged_values.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(20);
constexpr std::uint32_t kBootstrapKind = 1;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

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
  Socket answers;  // where its root connects to
  sockaddr_in address;
  std::uint32_t root;
};

class Step {
 public:
  Step(const std::vector<RootHandle>& roots, std::uint32_t ranks) : roots_(roots), epoll_(::epoll_create1(0)) {
    const auto count = static_cast<std::uint32_t>(roots.size());
    for (std::uint32_t rank = 0; rank < ranks && trouble_.empty(); ++rank) {
      listen(root_of_rank(rank, ranks, count));
    }
  }

  RootTimes run();

 private:
  void listen(std::uint32_t root);
  bool check_in(std::uint32_t rank, std::uint32_t rank_there, std::uint32_t root) const;
  void check_in_ranks_of(std::uint32_t root);
  void wait_for_answers();
  bool take_answer(std::uint32_t rank) const;
  double milliseconds() const { return std::chrono::duration<double, std::milli>(Clock::now() - begin_).count(); }

  const std::vector<RootHandle>& roots_;
  Socket epoll_;
  std::vector<Rank> ranks_;
  std::atomic<bool> may_begin_{false};
  std::atomic<std::uint32_t> refused_{0};
  Clock::time_point begin_;
  RootTimes times_;
  std::string trouble_;
};

void Step::listen(std::uint32_t root) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  auto address = roots_[root].address;  // the interface that NCCL chose
  address.sin_port = 0;
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(ranks_.size());
  if (::bind(socket.get(), place, size) != 0 || ::listen(socket.get(), 4) != 0 ||
      ::getsockname(socket.get(), place, &size) != 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    trouble_ = std::string("no socket for a rank: ") + std::strerror(errno);
    return;
  }
  ranks_.push_back({std::move(socket), address, root});
}

// `rank_there`: its number to this root. One message, closed at once, as NCCL does it.
bool Step::check_in(std::uint32_t rank, std::uint32_t rank_there, std::uint32_t root) const {
  CheckIn info{};
  info.rank = static_cast<std::int32_t>(rank_there);
  info.ranks = static_cast<std::int32_t>(ranks_.size());
  info.root = static_cast<std::int32_t>(root);
  info.roots = static_cast<std::int32_t>(roots_.size());
  put(info.answer_to, ranks_[rank].address);
  put(info.ring, ring_address(rank));
  Greeting greeting{.magic = {}, .kind = kBootstrapKind, .size = sizeof info};
  put(greeting.magic, roots_[root].magic);
  std::array<char, sizeof greeting + sizeof info> message{};
  std::memcpy(message.data(), &greeting, sizeof greeting);
  std::memcpy(message.data() + sizeof greeting, &info, sizeof info);
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto& address = roots_[root].address;
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         ::send(socket.get(), message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
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

bool Step::take_answer(std::uint32_t rank) const {
  const Socket socket(::accept4(ranks_[rank].answers.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::array<char, sizeof(Greeting) + sizeof(ConnectInfo)> message{};
  if (::recv(socket.get(), message.data(), message.size(), MSG_WAITALL) != static_cast<ssize_t>(message.size())) {
    return false;
  }
  Greeting greeting{};
  std::memcpy(&greeting, message.data(), sizeof greeting);
  const auto next = ring_address((rank + 1) % static_cast<std::uint32_t>(ranks_.size()));
  return std::memcmp(greeting.magic.data(), &roots_[ranks_[rank].root].magic, sizeof greeting.magic) == 0 &&
         greeting.kind == kBootstrapKind && greeting.size == sizeof(ConnectInfo) &&
         std::memcmp(message.data() + sizeof greeting, &next, sizeof next) == 0;
}

void Step::wait_for_answers() {
  std::array<epoll_event, 64> events{};
  while (times_.answers < ranks_.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begin_ + kPatience - Clock::now());
    const int ready = left.count() <= 0 ? 0
                                        : ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                                       static_cast<int>(left.count()));
    if (ready <= 0) {
      trouble_ = std::to_string(ranks_.size() - times_.answers) + " of " + std::to_string(ranks_.size()) +
                 " ranks have no answer of their root after " + std::to_string(kPatience.count()) +
                 " s; NCCL_DEBUG=WARN shows what it says";
      return;
    }
    for (int i = 0; i < ready; ++i) {
      if (!take_answer(events[static_cast<std::size_t>(i)].data.u32)) {
        trouble_ = "a root gave another answer than the address of the next rank";
        return;
      }
      if (times_.answers++ == 0) times_.first_ms = milliseconds();
    }
  }
  times_.last_ms = milliseconds();
}

RootTimes Step::run() {
  std::vector<std::thread> threads;
  for (std::uint32_t root = 0; root < roots_.size() && trouble_.empty(); ++root) {
    threads.emplace_back([this, root] { check_in_ranks_of(root); });
  }
  begin_ = Clock::now();
  may_begin_ = true;
  if (trouble_.empty()) wait_for_answers();
  for (auto& thread : threads) thread.join();
  if (refused_ > 0 && trouble_.empty()) trouble_ = std::to_string(refused_) + " ranks could not connect to their root";
  times_.trouble = trouble_;
  return times_;
}

}  // namespace

RootTimes check_in_all(const std::vector<RootHandle>& roots, std::uint32_t ranks) { return Step(roots, ranks).run(); }

}  // namespace bench
