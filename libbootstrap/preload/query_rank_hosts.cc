// Where the ranks of mpirun are, asked before `main` in a process of its own, which the program never notices.
// SPDX-License-Identifier: Apache-2.0
#include "preload/query_rank_hosts.h"

#include "comm/helper_main.h"
#include "comm/process/helper_process.h"
#include "core/util/text.h"
#include "probe/read_environment.h"

namespace bootstrap {

Result<std::vector<std::string>> query_rank_hosts() {
  constexpr std::chrono::seconds kPatience{10};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  // One that is late is not ended: mpirun would take the end of its session for the loss of the rank.
  auto answer = ask_helper({kHostsRequest}, process_environment(), deadline);
  if (!answer && answer.error().code == ErrorCode::kTimeout) {
    return fail(ErrorCode::kTimeout, "mpirun's PMIx server did not provide the hosts of the ranks within 10 s");
  }
  if (!answer) {
    return fail(answer.error().code,
                cat({"the helper process for mpirun's PMIx server failed: ", answer.error().message}));
  }
  if (answer->size() < 2)
    return fail(ErrorCode::kUnavailable, "the helper process for mpirun's PMIx server returned an incomplete answer");
  if (answer->front() != kHostsKnown) return fail(ErrorCode::kUnavailable, (*answer)[1]);
  answer->erase(answer->begin());
  return std::move(*answer);
}

}  // namespace bootstrap
