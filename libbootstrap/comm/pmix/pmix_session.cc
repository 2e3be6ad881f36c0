// One session of this rank with the PMIx server of its node.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/pmix_session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>

#include "core/util/text.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMpiruns = "mpirun's";

// The process that opened the kept session. A forked child has no part in it.
std::atomic<pid_t> keeper{0};

// One session with mpirun serves all calls of a process. mpirun answers PMIx_Finalize in one thread, and notes it in
// another one later (op_cbfunc2() in src/server/pmix_server.c of PMIx 4.2.2). It takes a client that closes its
// connection in between for lost, and counts one rank less on the node in all later fences, also in MPI's: 1 of 25 runs
// with 8 ranks. Slurm's server uses one thread.
Status keep_open(std::uint16_t port) {
  if (keeper == ::getpid()) return {};
  const auto self = pmix::init(kMpiruns);
  if (!self) return fail(self.error());
  (void)ServerConnection::find(port);  // close-on-exec
  if (keeper.exchange(::getpid()) == 0) (void)std::atexit([] { PmixSession::end_kept(); });
  return {};
}

}  // namespace

void PmixSession::end_kept() noexcept {
  pid_t self = ::getpid();
  if (!keeper.compare_exchange_strong(self, 0)) return;
  try {
    AbandonableThread worker;
    if (worker.start(pmix::finish)) {
      (void)worker.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(2));
    }
  } catch (const std::exception&) {
    // Out of memory: mpirun reports that the rank ended without PMIx_Finalize.
  }
}

Result<PmixSession> PmixSession::open(const PmixServer& server, Rank rank, bool may_follow_another) {
  if (auto loaded = pmix::load(); !loaded) return fail(loaded.error());
  if (server.from_mpirun) {
    if (auto kept = keep_open(server.port); !kept) return fail(kept.error());
  }
  PmixSession session;
  session.is_shared_ = pmix::is_initialized();
  auto self = pmix::init(server.from_mpirun ? kMpiruns : "Slurm's");
  if (!self) return fail(self.error());
  session.self_.reset(new pmix::Identity(std::move(*self)));
  session.may_follow_another_ = may_follow_another && !session.is_shared_;
  if (!session.is_shared_) session.connection_ = ServerConnection::find(server.port);
  if (session.is_shared_ && ServerConnection::count(server.port).value_or(0) > 0) session.seen_port_ = server.port;
  const auto& known = *session.self_;
  if (known.name_space != server.name_space || known.rank != rank) {
    const std::string found = cat({known.name_space, " rank ", std::to_string(known.rank)});
    return fail(ErrorCode::kDisagreement,
                cat({"the PMIx server on this node knows this process as ", found, ", but it is ", server.name_space,
                     " rank ", std::to_string(rank), ": the PMIX_* variables were changed after the task started"}));
  }
  return session;
}

pmix::SharedAnswer PmixSession::fence(std::vector<Wanted> wanted, const std::shared_ptr<Questions>& begun) const {
  if (pmix::keeps_what_it_read()) wanted.clear();  // read() asks one after the other
  return pmix::fence([self = *self_, wanted = std::move(wanted), begun] {
    for (const Wanted& one : wanted) begun->push_back(pmix::get(self, one.rank, one.key, true));
  });
}

Values PmixSession::read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others, const Accept& accept,
                         Questions begun) const {
  // A question about a rank that never joins stays open forever; other questions must not wait for it.
  constexpr auto kPatience = std::chrono::milliseconds(5);
  // Each question is a message to the server, and hundreds of ranks of a node may wait for one late rank.
  constexpr auto kLongestPause = std::chrono::milliseconds(16);
  auto pause = std::chrono::milliseconds(2);
  Values values(wanted.size());
  Questions open = std::move(begun);
  open.resize(wanted.size());
  // With hash each question is a message to the server and back, and TCP delays the second of two answers until the
  // first is acknowledged, for 40 ms (Nagle's algorithm). So while the server answers, only one question is open. The
  // server answers at once unless it must ask another server, or shares its cores with hundreds of ranks.
  const auto time_of_one = ask_others ? kPatience : std::chrono::milliseconds(200);
  bool is_one_at_a_time = pmix::keeps_what_it_read();
  while (true) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Wanted& one = wanted[i];
      if (values[i] || open[i]) continue;
      open[i] = pmix::get(*self_, one.rank, one.key, !(ask_others && one.is_remote));
      is_one_at_a_time =
          is_one_at_a_time && open[i]->wait_until(std::min(deadline, Deadline::clock::now() + time_of_one));
    }
    const auto now = std::chrono::steady_clock::now();
    bool is_refused = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (values[i] || !open[i]->wait_until(std::min(deadline, now + kPatience))) continue;
      const auto answer = std::exchange(open[i], nullptr);
      if (answer->code == pmix::kSuccess && accept(wanted[i].rank, answer->bytes)) {
        values[i] = std::move(answer->bytes);
        continue;
      }
      wipe(answer->bytes);  // may be a secret of another round
      is_refused = true;
    }
    const bool is_whole =
        std::all_of(values.begin(), values.end(), [](const auto& value) { return value.has_value(); });
    if (is_whole || now >= deadline) return values;
    if (!is_refused) continue;
    sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

ServerState PmixSession::look_for_server(Deadline deadline) const {
  // No rank has that value, and with PMIX_IMMEDIATE a server answers that in 0.3 ms.
  const bool is_answered = pmix::get(*self_, self_->rank, "bootstrap.nothing", true)->wait_until(deadline);
  const bool has_closed = seen_port_ != 0 && ServerConnection::count(seen_port_) == 0;  // libpmix closed it
  if (is_shared_ ? has_closed : connection_.is_lost()) return ServerState::kEnded;  // then libpmix itself has answered
  return is_answered ? ServerState::kAnswers : ServerState::kSilent;
}

bool PmixSession::close(Deadline deadline) {
  self_.reset();
  return is_shared_ || connection_.wait_closed(deadline);
}

}  // namespace bootstrap
