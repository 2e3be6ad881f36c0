// Rank 0 in a check: listens where the ranks are to meet, hears their reports, and tells all what came of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/check/check_frame.h"
#include "tools/check/check_report.h"
#include "tools/check/check_socket.h"

namespace bootstrap {

// Anybody can connect. Memory and descriptors are bounded by the size of the step: one report for each rank, at most
// kStrangers connections more than ranks, one frame of at most 16 KiB for each.
class CheckServer {
 public:
  // The limit of open files is raised as far as the step needs it, and put back at the end. kLimit where it cannot be.
  static Result<CheckServer> open(const std::string& step_tag, std::size_t ranks);
  CheckServer(CheckServer&& other) noexcept;
  CheckServer& operator=(CheckServer&&) = delete;
  ~CheckServer();

  // As a rendezvous server does. The error is the reason alone: "another program has it".
  Status listen(std::uint16_t port);
  // On the first of these that nobody has; without one, ranks can come on the other port only.
  void open_side_door(std::span<const std::uint16_t> ports);

  // Each until all of them are there, or the deadline. Outcomes can only come from ranks that are still connected.
  void gather_reports(Deadline deadline);
  void gather_outcomes(Deadline deadline);

  void tell(FrameKind kind, std::string_view body);  // to all that gave a report and are still connected
  void close_doors();                                // nobody can connect any more, and the port is free
  // Waits for the others to end their connections, so that nothing of ours stays in TIME_WAIT on the port.
  void part(Deadline deadline);

  std::vector<std::optional<CheckReport>>& reports() { return reports_; }  // by rank
  std::vector<std::optional<ExchangeOutcome>>& outcomes() { return outcomes_; }
  std::uint64_t strangers() const { return strangers_; }

 private:
  struct Client {
    Descriptor socket;
    FrameReader reader;
    std::optional<Rank> rank;  // it said hello
    bool has_reported = false;
    bool owes_outcome = false;
    int greetings = 0;
    std::uint64_t number = 0;  // in order of arrival
  };

  CheckServer(std::string step_tag, std::size_t ranks, Descriptor poller);

  template <class Done>
  void serve(Deadline deadline, Done done);
  bool watch(int descriptor) const;
  void accept_from(int door);
  void make_room();
  void read_from(int descriptor);
  bool handle(Client& guest, const Frame& frame);
  bool handle_hello(Client& guest, const Frame& frame);
  bool handle_report(Client& guest, const Frame& frame);
  bool handle_outcome(Client& guest, const Frame& frame);
  void drop(int descriptor);

  std::string step_tag_;
  std::size_t ranks_;
  Descriptor poller_;
  std::vector<Descriptor> doors_;
  std::unordered_map<int, Client> guests_;
  std::vector<std::optional<CheckReport>> reports_;
  std::vector<std::optional<ExchangeOutcome>> outcomes_;
  std::size_t report_count_ = 0;
  std::size_t owing_ = 0;  // guests that have reported, are still connected, and have given no outcome
  std::uint64_t arrivals_ = 0;
  std::uint64_t strangers_ = 0;
  std::uint64_t files_before_ = 0;  // limit to put back; 0: none
};

}  // namespace bootstrap
