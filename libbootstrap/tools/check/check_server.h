// Rank 0 in a check: listens at the rendezvous, receives the reports of the ranks, and sends all of them the result.
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
// kMostRejected connections more than ranks, little more than kMaxLine bytes for each.
class CheckServer {
 public:
  // The limit of open files is raised as far as the step needs it, and put back at the end. kLimit where it cannot be.
  static Result<CheckServer> open(const std::string& step_tag, std::size_t ranks);
  CheckServer(CheckServer&& other) noexcept = default;
  CheckServer& operator=(CheckServer&&) = delete;
  ~CheckServer();

  // As a rendezvous server does. The error is the reason alone: "another program uses it".
  Status listen(std::uint16_t port);
  // On the first of these that nobody has; without one, ranks can come on the other port only.
  void listen_aside(std::span<const std::uint16_t> ports);

  // Each until all of them are there, or the deadline. Only ranks that are still connected are waited for a second
  // time.
  void gather_reports(Deadline deadline);
  void gather_exchanges(Deadline deadline);

  void send_to_all(std::string_view word, std::string_view body);  // to all that gave a report and are still connected
  void stop_listening();                                           // nobody can connect any more, and the port is free
  // Waits for the others to end their connections, so that nothing of ours stays in TIME_WAIT on the port.
  void disconnect(Deadline deadline);

  const std::vector<std::optional<CheckReport>>& reports() const { return reports_; }  // by rank
  std::vector<Rank> missing() const;                                                   // no report came
  // Ranks whose reports this version cannot read, with the version of their command.
  const std::map<Rank, std::string>& other_versions() const { return other_versions_; }
  std::uint64_t rejected() const { return rejected_; }

 private:
  struct Client {
    Descriptor socket;
    std::string received = {};
    std::optional<Rank> rank = {};  // it has said who it is
    std::string version = {};
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
  bool is_missing(Rank rank) const;
  bool take_report(Client& client, const CheckLine& line);
  bool send(const Client& client, std::string_view word, std::string_view body) const;

  std::string step_tag_;
  Descriptor poller_;
  std::vector<Descriptor> listeners_;
  Clients clients_;
  std::uint64_t next_number_;
  std::vector<std::optional<CheckReport>> reports_;
  std::map<Rank, std::string> other_versions_;
  std::uint64_t rejected_ = 0;
  std::uint64_t files_before_ = 0;  // limit to put back; 0: none
};

}  // namespace bootstrap
