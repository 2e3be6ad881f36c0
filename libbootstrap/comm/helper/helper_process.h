// A process for work that must not run in the program: this file, started as a program, for as long as a rank asks it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"
#include "probe/files.h"

namespace bootstrap {

// The descriptor on which a helper reads its requests and writes its answers.
inline constexpr int kHelperSocket = 3;

// The program does not notice its helper: wait(2) does not find it, no signal reports its end, and it has none of the
// open files. Its arguments, its environment and files hold nothing of a request.
class HelperProcess {
 public:
  // With this environment without LD_PRELOAD. kTimeout: it has not begun at the deadline. kUnavailable, kUnsupported:
  // it cannot begin.
  static Result<std::unique_ptr<HelperProcess>> start(const Environment& environment, Deadline deadline);

  // The helper ends, too, when this is gone, when it has no further request, or when the process is gone; in its time.
  ~HelperProcess();

  // kTimeout: no answer at the deadline. kUnavailable: it ended without an answer. Do not ask again after either.
  Result<std::vector<std::string>> ask(const std::vector<std::string>& request, Deadline deadline);

  // After the last request: false if the helper has not ended before the deadline.
  bool wait_for_end(Deadline deadline);

 private:
  struct Start;
  HelperProcess(Descriptor socket, Start* start) : socket_(std::move(socket)), start_(start) {}

  Descriptor socket_;
  Start* start_;
};

// In the helper: the socket to the process that asks.
namespace helper_socket {

inline constexpr const char* kBegun = "begun";  // the first message of a helper

// The next request; an error: there is none any more.
Result<std::vector<std::string>> receive();

void send(const std::vector<std::string>& answer);

// Returns when the process that asks is gone, or has closed its end, and receive() has an end then.
void wait_for_end();

}  // namespace helper_socket

// The only argument of a helper that is a program, and not the library.
inline constexpr const char* kHelperArgument = "--helper";

}  // namespace bootstrap
