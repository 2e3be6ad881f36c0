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
  bool is_elsewhere = false;  // it is from another host; found out where it is asked for alone
};

class ReportSocket {
 public:
  // A free port of all addresses, for this step's token alone. Closed when the host has none left.
  static ReportSocket open();

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.get(); }
  const FailureAddress& address() const { return address_; }

  // The next one, without waiting; nothing when there is none. Reads at most a few thousand of other senders.
  // `asks_host`: whether is_elsewhere is wanted, which takes another socket for a moment.
  std::optional<ReceivedReport> receive(bool asks_host = false) const;

  // Wakes the thread that waits for the socket. It stays readable from now on.
  void wake() const;

 private:
  Descriptor socket_;
  FailureAddress address_;
};

// Whether srun has descriptors to spare in a step of so many nodes, by its limit (ulimit -n). `lowest_free`: before
// this one all are in use.
bool has_spare_descriptors(int lowest_free, std::size_t nodes);

}  // namespace bootstrap
