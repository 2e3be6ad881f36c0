// Rank 0 in a check: listens where the ranks are to meet, hears their reports, and tells all what came of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/check_report.h"
#include "tools/check/check_socket.h"

namespace bootstrap {

// Anybody can connect. Memory and descriptors are bounded by the size of the step: one report for each rank, at most
// kStrangers connections more than ranks, little more than kMaxLine bytes for each.
class CheckServer {
 public:
  // The limit of open files is raised as far as the step needs it, and put back at the end. kLimit where it cannot be.
  static Result<CheckServer> open(const std::string& step_tag, std::size_t ranks);
  CheckServer(CheckServer&& other) noexcept = default;
  CheckServer& operator=(CheckServer&&) = delete;
  ~CheckServer();

  // As a rendezvous server does. The error is the reason alone: "another program has it".
  Status listen(std::uint16_t port);
  // On the first of these that nobody has; without one, ranks can come on the other port only.
  void listen_aside(std::span<const std::uint16_t> ports);

  // Each until all of them are there, or the deadline. Only ranks that are still connected are waited for a second
  // time.
  void gather_reports(Deadline deadline);
  void gather_exchanges(Deadline deadline);

  void tell(std::string_view word, std::string_view body);  // to all that gave a report and are still connected
  void stop_listening();                                    // nobody can connect any more, and the port is free
  // Waits for the others to end their connections, so that nothing of ours stays in TIME_WAIT on the port.
  void part(Deadline deadline);

  const std::vector<std::optional<CheckReport>>& reports() const { return reports_; }  // by rank
  std::uint64_t strangers() const { return strangers_; }

 private:
  struct Client {
    Descriptor socket;
    std::string received = {};
    std::optional<Rank> rank = {};  // it has said who it is
    bool has_reported = false;
  };
  using Clients = std::map<std::uint64_t, Client>;  // by number, in order of arrival

  CheckServer(std::string step_tag, std::size_t ranks, Descriptor poller);

  void serve(Deadline deadline, const std::function<bool()>& is_done);
  bool watch(const Descriptor& socket, std::uint64_t number) const;
  void add_listener(Descriptor socket);
  void accept_from(const Descriptor& listener);
  void make_room();
  void read_from(Clients::iterator client);
  bool take(Client& client, const std::string& received);
  bool say(const Client& client, std::string_view word, std::string_view body) const;

  std::string step_tag_;
  Descriptor poller_;
  std::vector<Descriptor> listeners_;
  Clients clients_;
  std::uint64_t next_number_;
  std::vector<std::optional<CheckReport>> reports_;
  std::uint64_t strangers_ = 0;
  std::uint64_t files_before_ = 0;  // limit to put back; 0: none
};

}  // namespace bootstrap
