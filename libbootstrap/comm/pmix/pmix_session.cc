// One session of this rank with the PMIx server of its node: opened, used and closed on a worker's thread.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/pmix_session.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>

#include "core/util/text.h"
#include "probe/deadline.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMpiruns = "mpirun's";

// The process that opened the session that is kept: a forked child has no part in it.
std::atomic<pid_t> keeper{0};

// One session with mpirun serves all calls of a process. mpirun answers PMIx_Finalize in one thread, and notes it in
// another one later (op_cbfunc2() in src/server/pmix_server.c of PMIx 4.2.2). It takes a client that closes its
// connection in between for lost, and counts one rank less on the node in all later fences, also in MPI's: 1 of 25 runs
// with 8 ranks. Slurm's server uses one thread.
Status keep_open(const pmix::Client& client, std::uint16_t port) {
  if (keeper == ::getpid()) return {};
  const auto others = ServerConnection::list(port).value_or(Sockets{});
  const auto self = client.init(kMpiruns);
  if (!self) return fail(self.error());
  (void)ServerConnection::find(port, others);  // close-on-exec
  if (keeper.exchange(::getpid()) == 0) (void)std::atexit([] { PmixSession::end_kept(); });
  return {};
}

}  // namespace

void PmixSession::end_kept() noexcept {
  pid_t self = ::getpid();
  if (!keeper.compare_exchange_strong(self, 0)) return;
  try {
    const auto client = pmix::Client::load();
    AbandonableThread worker;
    if (client && worker.start([client = *client] { (void)client->finish(); })) {
      (void)worker.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(2));
    }
  } catch (const std::exception&) {
    // Out of memory: mpirun reports that the rank ended without PMIx_Finalize.
  }
}

Result<PmixSession> PmixSession::open(const PmixServer& server, Rank rank) {
  const auto client = pmix::Client::load();
  if (!client) return fail(client.error());
  if (server.from_mpirun) {
    const auto kept = keep_open(**client, server.port);
    if (!kept) return fail(kept.error());
  }
  const bool is_shared = (*client)->is_initialized();
  const auto others = ServerConnection::list(server.port).value_or(Sockets{});
  auto self = (*client)->init(server.from_mpirun ? kMpiruns : "Slurm's");
  if (!self) return fail(self.error());
  PmixSession session(*client, std::move(*self), is_shared);
  if (!is_shared) session.connection_ = ServerConnection::find(server.port, others);
  if (is_shared && !others.empty()) session.seen_port_ = server.port;
  if (session.self_.name_space != server.name_space || session.self_.rank != rank) {
    const std::string found = cat({session.self_.name_space, " rank ", std::to_string(session.self_.rank)});
    return fail(ErrorCode::kDisagreement,
                cat({"the PMIx server on this node knows this process as ", found, ", but it is ", server.name_space,
                     " rank ", std::to_string(rank), ": the PMIX_* variables were changed after the task started"}));
  }
  return session;
}

Status PmixSession::put(pmix::Scope scope, const std::string& key, std::string_view bytes) const {
  const pmix::Code code = client_->put(scope, key, bytes);
  if (code == pmix::kSuccess) return {};
  return fail(ErrorCode::kUnavailable,
              cat({"PMIx_Put of ", std::to_string(bytes.size()), " bytes failed: ", client_->describe(code)}));
}

Status PmixSession::commit() const {
  const pmix::Code code = client_->commit();
  if (code == pmix::kSuccess) return {};
  return fail(ErrorCode::kUnavailable, cat({"PMIx_Commit failed: ", client_->describe(code)}));
}

PmixSession::Question PmixSession::ask(const std::vector<Wanted>& wanted, std::size_t index, bool ask_others) const {
  const Wanted& one = wanted[index];
  return {index, client_->get(self_, one.rank, one.key, !(ask_others && one.is_remote))};
}

bool PmixSession::is_connection_lost() const {
  if (!is_shared_) return connection_.is_lost();
  if (seen_port_ == 0) return false;
  const auto open = ServerConnection::list(seen_port_);
  return open && open->empty();  // libpmix has closed its end
}

ServerState PmixSession::look_for_server(Deadline deadline) const {
  // No rank has that value, and with PMIX_IMMEDIATE a server answers so in 0.3 ms.
  const bool is_answered = client_->get(self_, self_.rank, "bootstrap.nothing", true).wait_until(deadline);
  if (is_connection_lost()) return ServerState::kEnded;  // then libpmix itself has answered
  return is_answered ? ServerState::kAnswers : ServerState::kSilent;
}

bool PmixSession::close(Deadline deadline) {
  open_.reset();
  return is_shared_ || connection_.wait_closed(deadline);
}

}  // namespace bootstrap
