// An end for a command that hangs in something that has no deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace bootstrap {

// Ends the process with one sentence if it lives longer than `limit`, whatever it hangs in. One at a time in a process.
class Watchdog {
 public:
  Watchdog(const char* command, std::chrono::seconds limit);  // "the check"; the text is kept, not copied
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  static void now(const char* activity);  // for the sentence: "the exchange over PMIx"; likewise
};

}  // namespace bootstrap
