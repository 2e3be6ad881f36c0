// The peer that the exchange is measured against: the same values sent with PMIx's own calls and nothing around them.
// SPDX-License-Identifier: Apache-2.0
#include "bare_pmix.h"

#include <pmix.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bench {
namespace {

void check(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS) return;
  (void)std::fprintf(stderr, "bare PMIx: %s: %s\n", call, PMIx_Error_string(status));
  std::exit(1);
}

}  // namespace

struct BarePmix::Self {
  pmix_proc_t process;
};

BarePmix::BarePmix() : self_(new Self) { check(PMIx_Init(&self_->process, nullptr, 0), "PMIx_Init"); }

BarePmix::~BarePmix() {
  check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
  delete self_;
}

void BarePmix::barrier() const { check(PMIx_Fence(nullptr, 0, nullptr, 0), "PMIx_Fence"); }

// A key is not used twice: libpmix keeps what it has read for as long as the session is open.
std::string BarePmix::next_key() { return "bench." + std::to_string(rounds_++); }

void BarePmix::put(const std::string& key, const std::string& value) const {
  pmix_value_t packed{};
  packed.type = PMIX_BYTE_OBJECT;
  packed.data.bo.bytes = const_cast<char*>(value.data());
  packed.data.bo.size = value.size();
  check(PMIx_Put(PMIX_GLOBAL, key.c_str(), &packed), "PMIx_Put");
}

void BarePmix::commit_and_fence() const {
  check(PMIx_Commit(), "PMIx_Commit");
  pmix_info_t collect{};
  (void)std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  check(PMIx_Fence(nullptr, 0, &collect, 1), "PMIx_Fence with data");
}

unsigned BarePmix::get(std::uint32_t rank, const std::string& key) {
  pmix_proc_t whose = self_->process;
  whose.rank = rank;
  pmix_value_t* value = nullptr;
  check(PMIx_Get(&whose, key.c_str(), nullptr, 0, &value), "PMIx_Get");
  ++gets_;
  unsigned sum = 0;
  for (const char byte : std::string(value->data.bo.bytes, value->data.bo.size))
    sum += static_cast<unsigned char>(byte);
  PMIX_VALUE_RELEASE(value);
  return sum;
}

unsigned BarePmix::broadcast(std::uint32_t root, const std::string& value) {
  const auto key = next_key();
  if (self_->process.rank == root) put(key, value);
  commit_and_fence();
  return get(root, key);
}

unsigned BarePmix::gather(std::uint32_t ranks, const std::string& value) {
  const auto key = next_key();
  put(key, value);
  commit_and_fence();
  unsigned sum = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += get(rank, key);
  return sum;
}

}  // namespace bench
