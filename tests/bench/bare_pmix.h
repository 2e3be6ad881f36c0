// The peer that the exchange is measured against: the same values sent with PMIx's own calls and nothing around them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// One session, open for the life of the object. No deadline, no check, no query for missing ranks: what the example
// programs of PMIx do. Each call ends the process with a message when PMIx refuses.
class BarePmix {
 public:
  BarePmix();
  ~BarePmix();
  BarePmix(const BarePmix&) = delete;
  BarePmix& operator=(const BarePmix&) = delete;

  // A fence that carries nothing: after it all ranks start about at the same time, those of other nodes only in steps
  // of at least TreeWidth nodes (etc/doc/pmix-facts.md).
  void barrier() const;

  // The value of `root` to all: one put, and a collecting fence and one get on each rank. Returns a sum of the bytes.
  unsigned broadcast(std::uint32_t root, const std::string& value);

  // The values of all `ranks` to all: a put, a collecting fence and `ranks` gets on each.
  unsigned gather(std::uint32_t ranks, const std::string& value);

  std::uint64_t gets() const { return gets_; }  // so far

 private:
  void put(const std::string& key, const std::string& value) const;
  void commit_and_fence() const;
  unsigned get(std::uint32_t rank, const std::string& key);
  std::string next_key();

  struct Self;
  Self* self_;
  int rounds_ = 0;
  std::uint64_t gets_ = 0;
};

}  // namespace bench
