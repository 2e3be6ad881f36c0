// One connection of this rank to the PMIx server of its node: opened, used and closed on a worker's thread.
// SPDX-License-Identifier: Apache-2.0
#include "comm/session.h"

#include <time.h>

#include "core/text.h"

namespace bootstrap {

void pause_before_asking_again() {
  const timespec pause{0, 2'000'000};  // 2 ms: each question is a message to the server
  (void)::nanosleep(&pause, nullptr);
}

Result<Session> Session::open(const PmixServer& server, Rank rank) {
  const auto client = pmix::Client::load();
  if (!client) return fail(client.error());
  const bool is_shared = (*client)->is_initialized();
  const auto others = ServerConnection::list(server.port);
  auto self = (*client)->init();
  if (!self) return fail(self.error());
  Session session(*client, std::move(*self), is_shared);
  if (!is_shared) session.connection_ = ServerConnection::find(server.port, others);
  if (session.self_.name_space != server.name_space || session.self_.rank != rank) {
    const std::string found = cat({session.self_.name_space, " rank ", std::to_string(session.self_.rank)});
    (void)session.client_->finish();
    return fail(ErrorCode::kDisagreement,
                cat({"the PMIx server of this node takes this process for ", found, ", but it is ", server.name_space,
                     " rank ", std::to_string(rank), ": the PMIX_* variables were changed after the task started"}));
  }
  return session;
}

Status Session::put(pmix::Scope scope, const std::string& key, std::string_view bytes) const {
  const pmix::Code code = client_->put(scope, key, bytes);
  if (code == pmix::kSuccess) return {};
  return fail(ErrorCode::kUnavailable,
              cat({"PMIx_Put of ", std::to_string(bytes.size()), " bytes failed: ", client_->describe(code)}));
}

Status Session::commit() const {
  const pmix::Code code = client_->commit();
  if (code == pmix::kSuccess) return {};
  return fail(ErrorCode::kUnavailable, cat({"PMIx_Commit failed: ", client_->describe(code)}));
}

Session::Question Session::ask(const std::vector<Wanted>& wanted, std::size_t index, bool ask_others) const {
  const Wanted& one = wanted[index];
  return {index, client_->get(self_, one.rank, one.key, !(ask_others && one.is_remote))};
}

bool Session::close(Deadline deadline) {
  (void)client_->finish();
  return is_shared_ || connection_.wait_closed(deadline);
}

}  // namespace bootstrap
