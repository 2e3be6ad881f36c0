// PMIx without linking: the few calls that are used, of the libpmix that the process has loaded, or of the system.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/exchange.h"
#include "core/util/result.h"

namespace bootstrap::pmix {

using Code = int;
inline constexpr Code kSuccess = 0;

// The answer to a call that was started: it may come at any time, or never, also after the session.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_there = false;
  // Unchanged from then on.
  Code code = kSuccess;
  std::string bytes;

  bool wait_until(Deadline deadline);  // true: it has come
};
using SharedAnswer = std::shared_ptr<Answer>;

enum class Scope : std::uint8_t { kNode, kStep };  // which ranks may read a value: those of this node, or all

// Loads the copy that this process has loaded, else SLURM_BOOTSTRAP_PMIX or libpmix.so.2. It stays loaded. The
// functions below need it; init() and finish() can block forever if the server does not answer, the others return at
// once.
Status load();

const std::string& version();  // "4.2.2"
bool keeps_what_it_read();     // a session returns old values after a new one was put
bool is_initialized();         // other code in this process has a session open

// This process as the server knows it.
struct Identity {
  std::string name_space;
  std::uint32_t rank = 0;
};
Result<Identity> init(std::string_view whose);  // "Slurm's" server, for messages
void finish();

// Hands the value to the server of this node.
Status put(Scope scope, const std::string& key, std::string_view bytes);
// Of all ranks, collecting what they put. A thread of libpmix calls `then` when it has succeeded, before the answer.
SharedAnswer fence(std::function<void()> then);
// `at_once`: only from this node's server; else that one asks the other node, which may never answer.
SharedAnswer get(const Identity& self, std::uint32_t rank, const std::string& key, bool at_once);

std::string describe(Code code);  // "PMIX_ERR_UNREACH (-25)"

// If set, a wait for an answer unlocks it, which its caller has locked, and locks it again at its end.
inline std::mutex* released_in_waits = nullptr;

}  // namespace bootstrap::pmix
