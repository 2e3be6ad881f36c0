// In srun: the UDP socket where it receives what the nodes report.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <variant>

#include "core/step/failure.h"
#include "core/step/receipts.h"
#include "probe/files.h"

namespace bootstrap {

struct ReceivedReport {
  std::variant<Failure, NodeReport> report;
  bool is_elsewhere = false;  // it is from another host; false if the caller did not ask
};

class ReportSocket {
 public:
  // Binds a free port of all addresses, for this step's token alone. Not open if the host has none left.
  static ReportSocket open();

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.get(); }
  const FailureAddress& address() const { return address_; }

  // The next report, without waiting; nullopt: there is none. Reads at most 4,096 datagrams of other senders.
  // `asks_host`: finds out is_elsewhere, which takes another socket for a moment.
  std::optional<ReceivedReport> receive(bool asks_host = false) const;

  // Wakes the thread that waits for the socket. It stays readable from now on.
  void wake() const;

 private:
  Descriptor socket_;
  FailureAddress address_;
};

// True if srun has descriptors to spare in a step of so many nodes, by its limit (ulimit -n). All descriptors below
// `lowest_free` are in use.
bool has_spare_descriptors(int lowest_free, std::size_t nodes);

}  // namespace bootstrap
