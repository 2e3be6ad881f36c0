// The two ends of a check over TCP: a rank that connects to rank 0, and rank 0 at the rendezvous.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/step_id.h"
#include "tools/check/check_report.h"
#include "tools/check/check_socket.h"

namespace bootstrap {

// The port of rank 0's host for reports of ranks that cannot reach MASTER_PORT. Computed, so that all ranks know it,
// and outside of the ranges from which the plugin and Linux choose ports.
std::uint16_t side_port(const StepId& id);

// A rank's connection to rank 0.
class CheckClient {
 public:
  CheckClient(Descriptor socket, std::string step_tag, Rank rank)
      : socket_(std::move(socket)), step_tag_(std::move(step_tag)), rank_(rank) {}

  bool send(std::string_view word, std::string_view body, Deadline deadline);
  // Nothing if the other side has ended the connection, is not of this step, or the deadline has passed.
  std::optional<CheckLine> receive(Deadline deadline);

 private:
  Descriptor socket_;
  std::string step_tag_;
  Rank rank_;
  std::string received_;
};

// Connects to MASTER_ADDR:MASTER_PORT of the report, or to the side port of `host`, on which rank 0 runs, and adds to
// the report how that went. Tries again until the deadline, since rank 0 may start later. The error is the reason
// alone: "Connection refused (10.1.0.1)".
Result<CheckClient> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host, Deadline deadline);

// Rank 0: receives the reports of the ranks, and sends all of them the result.
//
// Any process can connect. Memory and descriptors are bounded by the size of the step: one report for each rank, at
// most kMostStrangers connections more than ranks, little more than kMaxLine bytes for each.
class CheckServer {
 public:
  CheckServer(std::string step_tag, std::size_t ranks) : step_tag_(std::move(step_tag)), reports_(ranks) {}
  CheckServer(const CheckServer&) = delete;
  CheckServer& operator=(const CheckServer&) = delete;
  ~CheckServer();

  // As far as the step needs it, until the end of the server. kLimit if that fails.
  Status raise_file_limit();
  // Listens like a rendezvous server. The error is the reason alone: "another program uses it".
  Status listen(std::uint16_t port);
  // Where no other program uses it; else ranks can connect to the other port only.
  void listen_aside(std::uint16_t port);

  // Each waits until all of them are there, or the deadline; the second one only for ranks that are still connected.
  void gather_reports(Deadline deadline);
  void gather_exchanges(Deadline deadline);

  void send_to_all(std::string_view word, std::string_view body);  // to all that gave a report and are still connected
  void stop_listening();                                           // the port is free then
  // Waits for the others to end their connections, so that nothing of ours stays in TIME_WAIT on the port.
  void disconnect(Deadline deadline);

  const std::vector<std::optional<CheckReport>>& reports() const { return reports_; }  // by rank
  std::vector<Rank> missing() const;                                                   // sent no report
  // Ranks whose reports this version cannot read, with the version of their command.
  const std::map<Rank, std::string>& other_versions() const { return other_versions_; }

 private:
  struct Client {
    Descriptor socket;
    std::string received = {};
    std::optional<Rank> rank = {};  // once it has identified itself
    std::string version = {};
    bool has_reported = false;
  };

  void serve(Deadline deadline, const std::function<bool()>& is_done);
  void accept_from(const Descriptor& listener);
  void make_room();
  bool read_from(Client& client);
  bool take(Client& client, const std::string& received);
  bool take_report(Client& client, const CheckLine& line);
  bool send(const Client& client, std::string_view word, std::string_view body) const;

  std::string step_tag_;
  std::vector<Descriptor> listeners_;
  std::list<Client> clients_;  // in order of arrival
  std::vector<std::optional<CheckReport>> reports_;
  std::map<Rank, std::string> other_versions_;
  std::optional<rlimit> files_before_;  // limit to put back
};

}  // namespace bootstrap
