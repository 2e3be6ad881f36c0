// One value from the first rank of a node to its others, through memory that they share.
// SPDX-License-Identifier: Apache-2.0
#include "node_share.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace bench {

// Two values in turn: who is slow to read one is not overtaken, since a fence lies between two rounds.
struct NodeShare::Page {
  std::atomic<std::uint32_t> round;  // whose value is there
  std::array<std::uint32_t, 2> sizes;
  std::array<std::array<char, kMost>, 2> values;
};

namespace {

[[noreturn]] void stop(const char* call, const std::string& name) {
  (void)std::fprintf(stderr, "node share: %s of %s: %s\n", call, name.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_memory(const std::string& name, bool is_first, std::size_t size) {
  if (is_first) {
    const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) stop("shm_open", name);
    return file;
  }
  const timespec pause{0, 1'000'000};
  for (int tries = 0; tries < 10000; ++tries) {
    const int file = ::shm_open(name.c_str(), O_RDWR, 0);
    if (file >= 0 && ::lseek(file, 0, SEEK_END) >= static_cast<off_t>(size)) return file;
    if (file >= 0) ::close(file);
    if (file < 0 && errno != ENOENT) break;
    (void)::nanosleep(&pause, nullptr);
  }
  stop("shm_open", name);
}

}  // namespace

NodeShare::NodeShare(std::string name, bool is_first) : name_(std::move(name)), is_first_(is_first) {
  const int file = open_memory(name_, is_first_, sizeof(Page));
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) stop("mmap", name_);
  ::close(file);
  page_ = static_cast<Page*>(memory);
}

NodeShare::~NodeShare() { (void)::munmap(page_, sizeof(Page)); }

void NodeShare::forget_name() const {
  if (is_first_) (void)::shm_unlink(name_.c_str());
}

void NodeShare::pass_on(std::string& value) {
  const auto round = ++rounds_;
  auto& size = page_->sizes[round % 2];
  auto& bytes = page_->values[round % 2];
  auto* const word = reinterpret_cast<std::uint32_t*>(&page_->round);
  if (is_first_) {
    size = static_cast<std::uint32_t>(std::min(value.size(), kMost));
    std::copy_n(value.data(), size, bytes.begin());
    page_->round.store(round, std::memory_order_release);
    (void)::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return;
  }
  for (auto seen = page_->round.load(std::memory_order_acquire); seen < round;
       seen = page_->round.load(std::memory_order_acquire)) {
    (void)::syscall(SYS_futex, word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
  value.assign(bytes.data(), size);
}

}  // namespace bench
