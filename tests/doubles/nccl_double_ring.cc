// How the ranks of the NCCL double find each other: roots that listen, and a ring over which they gather.
// SPDX-License-Identifier: Apache-2.0
#include "nccl_double_parts.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace nccl_double {
namespace {

// The message of a rank to its root. The first rank of a root also sends it to the root before, whose last rank
// connects to it; there its number follows that of the last rank.
struct CheckIn {
  int rank;
  int ranks;
  int root;
  int roots;
  sockaddr_in answer_to;
  sockaddr_in ring;
};
constexpr std::uint32_t kHandshakeType = 1;
constexpr Magic kMagicOfAll = 0x564ab9f2fc4b9d6cULL;  // of ids that NCCL_COMM_ID makes

struct Greeting {
  std::uint32_t type = kHandshakeType;
  std::uint32_t size = sizeof(CheckIn);
};

int root_of(int rank, int ranks, int roots) {
  int root = 0;
  while (root + 1 < roots && first_rank(root + 1, ranks, roots) <= rank) ++root;
  return root;
}

// The root of one id. Sends each of its ranks the address of the next rank, as soon as both have checked in.
class Root {
 public:
  Root(Magic magic, Socket listener) : magic_(magic), listener_(std::move(listener)) {}

  void serve() {
    bool is_done = false;
    while (!is_done) {
      const auto peer = listener_.accept(magic_, Port::kBootstrap, never_);
      Greeting greeting;
      CheckIn info{};
      peer.receive(&greeting, sizeof greeting, never_);
      if (greeting.type != kHandshakeType || greeting.size != sizeof info) {
        throw Trouble{ncclInternalError, "Message truncated : received " + std::to_string(greeting.size) +
                                             " bytes instead of " + std::to_string(sizeof info)};
      }
      peer.receive(&info, sizeof info, never_);
      take(info);
      is_done = pass_on();
    }
  }

 private:
  void take(const CheckIn& info) {
    if (ranks_ == 0) begin(info);
    const auto place = static_cast<std::size_t>(info.rank - first_);
    if (info.ranks != ranks_ || info.roots != roots_ || info.root != root_ || info.rank < first_ ||
        place >= arrived_.size() || arrived_[place]) {
      throw Trouble{ncclInternalError,
                    "Bootstrap Root : rank " + std::to_string(info.rank) + " does not fit, or has already checked in"};
    }
    arrived_[place] = info;
  }

  void begin(const CheckIn& info) {
    ranks_ = info.ranks;
    roots_ = info.roots;
    root_ = info.root;
    first_ = first_rank(root_, ranks_, roots_);
    own_ = first_rank(root_ + 1, ranks_, roots_) - first_;
    arrived_.resize(static_cast<std::size_t>(roots_ > 1 ? own_ + 1 : own_));
    is_answered_.resize(static_cast<std::size_t>(own_));
  }

  // True if all ranks have their answer.
  bool pass_on() {
    bool is_done = true;
    for (std::size_t place = 0; place < is_answered_.size(); ++place) {
      const auto& next = arrived_[(place + 1) % arrived_.size()];
      if (!is_answered_[place] && arrived_[place] && next) {
        Socket::connect(arrived_[place]->answer_to, magic_, never_).send(&next->ring, sizeof next->ring, never_);
        is_answered_[place] = true;
      }
      is_done = is_done && is_answered_[place];
    }
    return is_done;
  }

  const AbortFlag never_{false};
  Magic magic_;
  Socket listener_;
  int ranks_ = 0;
  int roots_ = 0;
  int root_ = 0;
  int first_ = 0;
  int own_ = 0;  // ranks of this root
  // By number in this root; one more if the next root's first rank is expected, too.
  std::vector<std::optional<CheckIn>> arrived_;
  std::vector<bool> is_answered_;
};

extern "C" void* run_root(void* argument) {
  const std::unique_ptr<Root> root(static_cast<Root*>(argument));
  try {
    root->serve();
  } catch (const Trouble& trouble) {
    set_last_error(trouble.text);  // and its ranks keep waiting, as NCCL's do
  }
  return nullptr;
}

void serve_root(Magic magic, Socket listener) {
  auto root = std::make_unique<Root>(magic, std::move(listener));
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, run_root, root.get()) != 0) {
    throw Trouble{ncclSystemError, "Call to pthread_create failed"};
  }
  (void)::pthread_detach(thread);
  (void)root.release();
}

// "10.0.0.1:4000".
sockaddr_in address_in(const std::string& text) {
  sockaddr_in address{};
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    throw Trouble{ncclInvalidArgument, "Invalid NCCL_COMM_ID, please use format: <ipv4>:<port>"};
  }
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return address;
}

ncclUniqueId id_of(const Handle& handle) {
  ncclUniqueId id{};
  static_assert(sizeof handle <= sizeof id);
  std::memcpy(&id, &handle, sizeof handle);
  return id;
}

Handle handle_in(const ncclUniqueId& id) {
  Handle handle{};
  std::memcpy(&handle, &id, sizeof handle);
  return handle;
}

void check_in(const Handle& root, const CheckIn& info, const AbortFlag& abort) {
  const auto socket = Socket::connect(root.address, root.magic, abort);
  const Greeting greeting;
  socket.send(&greeting, sizeof greeting, abort);
  socket.send(&info, sizeof info, abort);
}

}  // namespace

std::string fault_of_init(int rank) {
  const char* const fault = std::getenv("NCCL_DOUBLE_INIT");
  const std::string text = fault == nullptr ? "" : fault;
  const auto colon = text.find(':');
  const bool is_others = colon != std::string::npos && text.substr(colon + 1) != std::to_string(rank);
  return is_others ? "" : text.substr(0, colon);
}

int first_rank(int root, int ranks, int roots) {
  int first = 0;
  for (int i = 0; i < root; ++i) first += ranks / roots + (i < ranks % roots ? 1 : 0);
  return first;
}

ncclUniqueId start_root() {
  Handle handle{};
  if (::getrandom(&handle.magic, sizeof handle.magic, 0) != static_cast<ssize_t>(sizeof handle.magic)) {
    throw Trouble{ncclSystemError, "Call to getrandom failed"};
  }
  if (const char* const fixed = std::getenv("NCCL_COMM_ID"); fixed != nullptr) {
    handle.magic = kMagicOfAll;
    handle.address = address_in(fixed);
  } else {
    auto listener = Socket::listener();
    handle.address = listener.address();
    serve_root(handle.magic, std::move(listener));
  }
  return id_of(handle);
}

Ring::Ring(const std::vector<ncclUniqueId>& ids, int rank, int ranks, const AbortFlag& abort)
    : rank_(rank), ranks_(ranks), magic_(handle_in(ids.front()).magic) {
  if (fault_of_init(rank) == "stall") hang(abort);
  if (rank == 0 && std::getenv("NCCL_COMM_ID") != nullptr) {
    const auto given = handle_in(ids.front());
    serve_root(given.magic, Socket::listener_at(given.address));
  }
  const int roots = static_cast<int>(ids.size());
  const int root = root_of(rank, ranks, roots);
  const auto mine = handle_in(ids[static_cast<std::size_t>(root)]);
  const auto answers = Socket::listener();
  const auto ring = Socket::listener();
  CheckIn info{rank, ranks, root, roots, answers.address(), ring.address()};
  check_in(mine, info, abort);
  if (roots > 1 && rank == first_rank(root, ranks, roots)) {
    info.root = (root + roots - 1) % roots;
    info.rank = first_rank(info.root + 1, ranks, roots);
    check_in(handle_in(ids[static_cast<std::size_t>(info.root)]), info, abort);
  }
  sockaddr_in next{};
  answers.accept(mine.magic, Port::kBootstrap, abort).receive(&next, sizeof next, abort);
  next_ = Socket::connect(next, magic_, abort);
  previous_ = ring.accept(magic_, Port::kBootstrap, abort);
}

void Ring::all_gather(void* all, std::size_t size, const AbortFlag& abort) const {
  auto* const bytes = static_cast<char*>(all);
  const auto place = [&](int rank) { return bytes + size * static_cast<std::size_t>((rank + ranks_) % ranks_); };
  for (int step = 0; step + 1 < ranks_; ++step) {
    next_.swap_with(previous_, place(rank_ - step), place(rank_ - step - 1), size, abort);
  }
}

}  // namespace nccl_double
