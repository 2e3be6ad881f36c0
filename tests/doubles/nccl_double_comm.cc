// A communicator of the NCCL double, and the data that its ranks exchange when they make it.
// SPDX-License-Identifier: Apache-2.0
#include "nccl_double_parts.h"

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
#include <utility>

namespace {

using nccl_double::Ring;
using nccl_double::Trouble;

struct Peer {
  std::uint64_t host;
  std::int64_t bus;
  sockaddr_in proxy;
};

// NCCL_HOSTID makes ranks look as if they were on different hosts.
std::uint64_t own_host() {
  const std::hash<std::string> hash;
  if (const char* const id = std::getenv("NCCL_HOSTID"); id != nullptr && id[0] != '\0') return hash(id);
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return hash(name.data());
}

// A function of CUDA if the process has loaded it, else of HIP.
template <class Function>
Function find(const char* cuda_name, const char* hip_name) {
  const char* name = cuda_name;
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    library = ::dlopen("libamdhip64.so.6", RTLD_LAZY | RTLD_NOLOAD);
    name = hip_name;
  }
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

// The index of another rank on the same GPU, or `peers.size()`.
std::size_t find_sharer(const std::vector<Peer>& peers, std::size_t self) {
  std::size_t i = 0;
  while (i < peers.size() &&
         (i == self || peers[i].bus < 0 || peers[i].bus != peers[self].bus || peers[i].host != peers[self].host)) {
    ++i;
  }
  return i;
}

// Ranks that share a GPU find this out by themselves; the others only lose a peer.
void compare_gpus(const std::vector<Peer>& peers, std::size_t self, const nccl_double::AbortFlag& abort) {
  if (const auto other = find_sharer(peers, self); other < peers.size()) {
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(),
                  "Duplicate GPU detected : rank %zu and rank %zu both on CUDA device %" PRIx64, self, other,
                  static_cast<std::uint64_t>(peers[self].bus));
    throw Trouble{ncclInvalidUsage, text.data()};
  }
  bool is_one_host = true;
  bool is_shared = false;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    is_one_host = is_one_host && peers[i].host == peers[0].host;
    is_shared = is_shared || find_sharer(peers, i) < peers.size();
  }
  if (is_shared && is_one_host) nccl_double::hang(abort);
  if (is_shared) throw Trouble{ncclRemoteError, "socketProgress: Connection closed by remote peer"};
}

void fail_in_init(int rank) {
  const auto fault = nccl_double::fault_of_init(rank);
  if (fault == "fail") throw Trouble{ncclUnhandledCudaError, "Failed to CUDA calloc 2097152 bytes"};
  if (fault == "stop") (void)::raise(SIGSTOP);
  if (fault == "kill") (void)::raise(SIGKILL);
  if (fault == "late-fail") {
    (void)::usleep(3000000);
    throw Trouble{ncclUnhandledCudaError, "Failed to CUDA calloc 2097152 bytes"};
  }
  if (fault == "slow") (void)::usleep(500000);
}

// One for the process, as in NCCL. Texts are never freed: a caller may still read one after the next error.
std::mutex last_error_mutex;
const char* last_error_text = "";

}  // namespace

std::int64_t nccl_double::bus_of_thread() {
  const auto of_context = find<int (*)(int*)>("cuCtxGetDevice", "hipGetDevice");
  const auto get = find<int (*)(int*, int)>("cuDeviceGet", "hipDeviceGet");
  const auto bus_id = find<int (*)(char*, int, int)>("cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId");
  if (of_context == nullptr || get == nullptr || bus_id == nullptr) return -1;
  int handle = 0;
  const bool is_there = of_context(&handle) == 0 || get(&handle, 0) == 0;
  std::array<char, 32> text{};
  if (!is_there || bus_id(text.data(), static_cast<int>(text.size()), handle) != 0) return -1;
  std::string digits(text.data());
  digits.erase(std::remove_if(digits.begin(), digits.end(), [](char c) { return c == ':' || c == '.'; }), digits.end());
  return std::strtoll(digits.c_str(), nullptr, 16);
}

void ncclComm::build(const std::vector<ncclUniqueId>& ids) {
  ring = std::make_unique<Ring>(ids, rank, ranks, abort);
  std::vector<Peer> peers(static_cast<std::size_t>(ranks));
  auto proxy = nccl_double::Socket::listener();
  peers[static_cast<std::size_t>(rank)] = {own_host(), bus, proxy.address()};
  proxies.push_back(std::move(proxy));
  fail_in_init(rank);
  ring->all_gather(peers.data(), sizeof(Peer), abort);
  compare_gpus(peers, static_cast<std::size_t>(rank), abort);
  const auto& next = peers[static_cast<std::size_t>((rank + 1) % ranks)];
  proxies.push_back(nccl_double::Socket::connect(next.proxy, ring->magic(), abort));
  proxies.push_back(proxies.front().accept(ring->magic(), nccl_double::Port::kProxy, abort));
  is_built = true;
}

// Gathers the values and adds them in order of rank, so that all ranks get the same bits.
void ncclComm::all_reduce(const float* from, float* to, std::size_t count) const {
  if (!ring) throw Trouble{ncclInvalidUsage, "the communicator is not ready"};
  std::vector<float> all(count * static_cast<std::size_t>(ranks));
  std::memcpy(all.data() + count * static_cast<std::size_t>(rank), from, count * sizeof(float));
  ring->all_gather(all.data(), count * sizeof(float), abort);
  std::fill(to, to + count, 0.0F);
  for (std::size_t i = 0; i < all.size(); ++i) to[i % count] += all[i];
}

ncclResult_t ncclComm::start(std::function<void(ncclComm&)> work) {
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
