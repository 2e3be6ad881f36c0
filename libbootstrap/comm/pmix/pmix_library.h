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

// The answer to a call that was started. It may come at any time, also after the session, or never.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_there = false;
  // Both are final once is_there is true.
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
// A fence of all ranks, which collects what they put. After success a thread of libpmix calls `then`, then answers.
SharedAnswer fence(std::function<void()> then);
// `at_once`: this node's server asks no other node; else it may, and the other node may never answer.
SharedAnswer get(const Identity& self, std::uint32_t rank, const std::string& key, bool at_once);

std::string describe(Code code);  // "PMIX_ERR_UNREACH (-25)"

// If set, the caller of a wait has locked this mutex: the wait unlocks it, and locks it again at its end.
inline std::mutex* released_in_waits = nullptr;

}  // namespace bootstrap::pmix
