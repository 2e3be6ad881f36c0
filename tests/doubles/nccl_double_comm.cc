// A communicator of the NCCL double, and what its ranks tell each other when they make it.
// SPDX-License-Identifier: Apache-2.0
#include "nccl_double_comm.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace {

using nccl_double::Ring;
using nccl_double::Trouble;

struct Peer {
  int version;
  std::uint64_t host;
  std::int64_t bus;
};

std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 14695981039346656037U;
  for (const char byte : text) value = (value ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return value;
}

// NCCL_HOSTID makes ranks look as if they were on different hosts.
std::uint64_t own_host() {
  if (const char* const id = std::getenv("NCCL_HOSTID"); id != nullptr && id[0] != '\0') return hash(id);
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return hash(name.data());
}

template <class Function>
Function find(const char* name) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(driver, name));
}

void compare_versions(const std::vector<Peer>& peers) {
  for (std::size_t i = 1; i < peers.size(); ++i) {
    if (peers[i].version == peers[0].version) continue;
    throw Trouble{ncclInvalidUsage, "Mismatched NCCL version detected : rank " + std::to_string(i) + " version " +
                                        std::to_string(peers[i].version) + " rank 0 version " +
                                        std::to_string(peers[0].version)};
  }
}

void compare_gpus(const std::vector<Peer>& peers) {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (peers[i].bus < 0 || peers[i].bus != peers[j].bus || peers[i].host != peers[j].host) continue;
      std::array<char, 160> text{};
      std::snprintf(text.data(), text.size(),
                    "Duplicate GPU detected : rank %zu and rank %zu both on CUDA device %" PRIx64, i, j,
                    static_cast<std::uint64_t>(peers[i].bus));
      throw Trouble{ncclInvalidUsage, text.data()};
    }
  }
}

// Gathered and then added in order of rank, so that all ranks get the same bits.
template <class Number>
void reduce(const Ring& ring, const void* from, void* to, std::size_t count, const nccl_double::AbortFlag& abort) {
  const auto ranks = static_cast<std::size_t>(ring.ranks());
  std::vector<Number> all(count * ranks);
  std::memcpy(all.data() + count * static_cast<std::size_t>(ring.rank()), from, count * sizeof(Number));
  ring.all_gather(all.data(), count * sizeof(Number), abort);
  auto* const sums = static_cast<Number*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    Number sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) sum += all[rank * count + i];
    sums[i] = sum;
  }
}

// What this all-reduce is to do wrong; empty: nothing.
std::string fault_of_call(int call) {
  const char* const fault = std::getenv("NCCL_DOUBLE_FAULT");
  const char* const first = std::getenv("NCCL_DOUBLE_FAULT_AT");
  return fault == nullptr || call < (first == nullptr ? 0 : std::atoi(first)) ? "" : fault;
}

void fail_before_sum(const std::string& fault, const nccl_double::AbortFlag& abort) {
  if (fault == "error") throw Trouble{ncclRemoteError, "a peer is gone"};
  if (fault == "stop") (void)::raise(SIGSTOP);
  while (fault == "stall") {
    if (abort) throw Trouble{ncclInternalError, "aborted"};
    (void)::usleep(10000);
  }
}

// Of the process, as in NCCL. Texts stay, so that whoever has been given one may read it whatever the next error is.
std::mutex last_error_mutex;
const char* last_error_text = "";

}  // namespace

DeviceOfThread device_of_thread() {
  DeviceOfThread device;
  const auto of_context = find<int (*)(int*)>("cuCtxGetDevice");
  const auto get = find<int (*)(int*, int)>("cuDeviceGet");
  const auto bus_id = find<int (*)(char*, int, int)>("cuDeviceGetPCIBusId");
  if (of_context == nullptr || get == nullptr || bus_id == nullptr) return device;
  int handle = 0;
  const bool is_there = of_context(&handle) == 0 || get(&handle, 0) == 0;
  std::array<char, 32> text{};
  if (!is_there || bus_id(text.data(), static_cast<int>(text.size()), handle) != 0) return device;
  std::string digits(text.data());
  digits.erase(std::remove_if(digits.begin(), digits.end(), [](char c) { return c == ':' || c == '.'; }), digits.end());
  device.ordinal = handle;
  device.bus = static_cast<std::int64_t>(std::strtoll(digits.c_str(), nullptr, 16));
  return device;
}

void ncclComm::build(const std::function<std::unique_ptr<Ring>(ncclComm&)>& connect) {
  ring = connect(*this);
  std::vector<Peer> peers(static_cast<std::size_t>(ranks));
  peers[static_cast<std::size_t>(rank)] = {nccl_double::version(), own_host(), device.bus};
  ring->all_gather(peers.data(), sizeof(Peer), abort);
  compare_versions(peers);
  compare_gpus(peers);
}

void ncclComm::all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type) {
  if (!ring) throw Trouble{ncclInvalidUsage, "the communicator is not ready"};
  const auto fault = fault_of_call(all_reduces++);
  fail_before_sum(fault, abort);
  if (type == ncclFloat32) {
    std::vector<float> sums(count);
    reduce<float>(*ring, from, sums.data(), count, abort);
    if (fault == "sum" && count > 0) sums.back() += 1;
    if (fault != "lazy") std::memcpy(to, sums.data(), count * sizeof(float));
    return;
  }
  if (type == ncclFloat64) return reduce<double>(*ring, from, to, count, abort);
  throw Trouble{ncclInvalidArgument, "the double adds floats and doubles only"};
}

std::unique_ptr<Ring> ncclComm::split(int color, int key) {
  struct Member {
    int color;
    int key;
    int rank;
    sockaddr_in address;
  };
  auto listener = nccl_double::Socket::listener();
  std::vector<Member> members(static_cast<std::size_t>(ranks));
  members[static_cast<std::size_t>(rank)] = {color, key, rank, listener.address()};
  ring->all_gather(members.data(), sizeof(Member), abort);
  const auto serial = static_cast<std::uint64_t>(++splits);
  if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
  std::erase_if(members, [color](const Member& member) { return member.color != color; });
  std::sort(members.begin(), members.end(), [](const Member& one, const Member& other) {
    return std::tie(one.key, one.rank) < std::tie(other.key, other.rank);
  });
  const auto own = std::find_if(members.begin(), members.end(), [this](const Member& m) { return m.rank == rank; });
  const auto place = static_cast<std::size_t>(own - members.begin());
  const auto magic = ring->magic() ^ (serial << 32) ^ static_cast<std::uint64_t>(color);
  return std::make_unique<Ring>(magic, std::move(listener), members[(place + 1) % members.size()].address,
                                static_cast<int>(place), static_cast<int>(members.size()), abort);
}

ncclResult_t ncclComm::run_allgather(std::function<void(ncclComm&)> work) {
  if (blocking) return nccl_double::guarded([&] { work(*this); });
  if (worker.joinable()) worker.join();
  state = ncclInProgress;
  worker = std::thread([this, work = std::move(work)] { state = nccl_double::guarded([&] { work(*this); }); });
  return ncclInProgress;
}

namespace nccl_double {

void set_last_error(const std::string& text) {
  {
    static auto* const texts = new std::set<std::string>();
    const std::lock_guard lock(last_error_mutex);
    last_error_text = texts->insert(text).first->c_str();
  }
  if (std::getenv("NCCL_DEBUG") == nullptr) return;
  std::printf("%d NCCL WARN %s\n", static_cast<int>(::getpid()), text.c_str());
  std::fflush(stdout);
}

const char* last_error() {
  const std::lock_guard lock(last_error_mutex);
  return last_error_text;
}

ncclResult_t guarded(const std::function<void()>& work) noexcept {
  try {
    work();
    return ncclSuccess;
  } catch (const Trouble& trouble) {
    set_last_error(trouble.text);
    return trouble.code;
  } catch (const std::exception& exception) {
    set_last_error(exception.what());
    return ncclInternalError;
  }
}

}  // namespace nccl_double
