// How the ranks of a check meet: each connects to rank 0, reports, and receives the verdict.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/step_id.h"
#include "probe/deadline.h"
#include "probe/files.h"
#include "tools/check/check_table.h"

namespace bootstrap {

inline constexpr std::size_t kMaxLine = 20480;

// Lines over TCP. Any process can connect, so a rank first names the step and itself, and rank 0 the step:
//   hello TAG RANK VERSION   from a rank, several times; rank 0 answers: clock TAG MICROSECONDS
//   report RECORD            what the rank found, and again after the exchange
//   exchange                 from rank 0 to all that have reported: all ranks are here, now exchange
//   verdict 0                from rank 0 to all that have reported: the exit status of all
struct CheckConnection {
  Descriptor socket;
  std::string received = {};  // after the last whole line

  bool send(std::string_view line, Deadline deadline) const;
  // False if the other side has ended the connection, or the line is too long.
  bool read_some();
  std::optional<std::string> take_line();  // the first whole one that was read
  // Empty if read_some() is false, or the deadline has passed.
  std::optional<std::string> receive(Deadline deadline);
};

// The port of rank 0's host for reports of ranks that cannot reach MASTER_PORT. Computed, so that all ranks know it,
// and outside of the ranges from which the plugin and Linux choose ports.
std::uint16_t side_port(const StepId& id);

inline std::int64_t wall_clock_us() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
}

// Connects to MASTER_ADDR:MASTER_PORT of the report, or to the side port of `host`, on which rank 0 runs, and adds to
// the report how that went. Tries again until the deadline, since rank 0 may start later. The error is the reason
// alone: "Connection refused (10.1.0.1)".
Result<CheckConnection> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host,
                                       Deadline deadline);

// Rank 0: receives the reports of the ranks, and sends all of them the result.
//
// Memory and descriptors are bounded by the size of the step: one report for each rank, at most kMostStrangers
// connections more than ranks, little more than kMaxLine bytes for each.
class CheckServer {
 public:
  // Makes room for the reports in the findings.
  explicit CheckServer(CheckFindings& findings);
  CheckServer(const CheckServer&) = delete;
  CheckServer& operator=(const CheckServer&) = delete;
  ~CheckServer();

  // Listens at MASTER_PORT like a rendezvous server, and at the side port where no other program uses it. Writes into
  // the findings why MASTER_PORT failed. kLimit if the step needs more open files than this process may have.
  Status listen(std::uint16_t port);

  // Waits for the reports of all ranks.
  void gather_reports(Deadline deadline);
  // Asks the ranks that are still connected to exchange, and waits for their second reports.
  void gather_exchanges(Deadline deadline);

  // Sends it to all ranks that have reported. The port is free before any rank receives it. Waits for the others to end
  // their connections, so that nothing of ours stays in TIME_WAIT on the port.
  void send_verdict(std::string_view line, Deadline deadline);

 private:
  struct Client : CheckConnection {
    std::optional<Rank> rank = {};  // once it has identified itself
    std::string version = {};
    bool has_reported = false;
  };

  Status raise_file_limit();  // until the end of the server
  void send_to_all(std::string_view line);
  void serve(Deadline deadline, const std::function<bool()>& is_done);
  void accept_from(const Descriptor& listener);
  bool read_from(Client& client);
  bool take(Client& client, std::string_view line);
  bool take_report(Client& client, std::string_view record);

  CheckFindings& findings_;
  std::string tag_;
  std::vector<Descriptor> listeners_;
  std::list<Client> clients_;           // in order of arrival
  std::optional<rlimit> files_before_;  // limit to put back
};

}  // namespace bootstrap
