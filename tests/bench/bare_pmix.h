// The peer that the exchange is measured against: the same values sent with PMIx's own calls and nothing around them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pmix.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

namespace bench {

// One session, open for the life of the object. No deadline, no check, no query for missing ranks: what the example
// programs of PMIx do. Each call ends the process with a message when PMIx refuses.
class BarePmix {
 public:
  BarePmix() { check(PMIx_Init(&self_, nullptr, 0), "PMIx_Init"); }
  ~BarePmix() { check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize"); }
  BarePmix(const BarePmix&) = delete;
  BarePmix& operator=(const BarePmix&) = delete;

  // A fence that carries nothing: after it all ranks start about at the same time, those of other nodes only in steps
  // of at least TreeWidth nodes (etc/doc/pmix-facts.md).
  void barrier() const { check(PMIx_Fence(nullptr, 0, nullptr, 0), "PMIx_Fence"); }

  void put(const std::string& key, const std::string& value) const {
    pmix_value_t packed{};
    packed.type = PMIX_BYTE_OBJECT;
    packed.data.bo.bytes = const_cast<char*>(value.data());
    packed.data.bo.size = value.size();
    check(PMIx_Put(PMIX_GLOBAL, key.c_str(), &packed), "PMIx_Put");
  }

  void commit() const { check(PMIx_Commit(), "PMIx_Commit"); }

  // A fence that carries all committed values to all nodes.
  void collect() const {
    pmix_info_t with_data{};
    (void)std::strncpy(with_data.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    with_data.value.type = PMIX_BOOL;
    with_data.value.data.flag = true;
    check(PMIx_Fence(nullptr, 0, &with_data, 1), "PMIx_Fence with data");
  }

  // Returns the sum of the value's bytes.
  unsigned get(std::uint32_t rank, const std::string& key) {
    pmix_proc_t owner = self_;
    owner.rank = rank;
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&owner, key.c_str(), nullptr, 0, &value), "PMIx_Get");
    ++gets_;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(value->data.bo.bytes);
    const auto sum = std::accumulate(bytes, bytes + value->data.bo.size, 0U);
    PMIX_VALUE_RELEASE(value);
    return sum;
  }

  // The value of `root` to all: one put, and a collecting fence and one get on each rank.
  unsigned broadcast(std::uint32_t root, const std::string& value) {
    const auto key = next_key();
    if (self_.rank == root) put(key, value);
    commit();
    collect();
    return get(root, key);
  }

  // The values of all `ranks` to all: a put, a collecting fence and `ranks` gets on each.
  unsigned gather(std::uint32_t ranks, const std::string& value) {
    const auto key = next_key();
    put(key, value);
    commit();
    collect();
    unsigned sum = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += get(rank, key);
    return sum;
  }

  std::uint64_t gets() const { return gets_; }  // so far

 private:
  static void check(pmix_status_t status, const char* call) {
    if (status == PMIX_SUCCESS) return;
    (void)std::fprintf(stderr, "bare PMIx: %s: %s\n", call, PMIx_Error_string(status));
    std::exit(1);
  }

  // A key is not used twice: libpmix keeps what it has read for as long as the session is open.
  std::string next_key() { return "bench." + std::to_string(rounds_++); }

  pmix_proc_t self_{};
  int rounds_ = 0;
  std::uint64_t gets_ = 0;
};

}  // namespace bench
