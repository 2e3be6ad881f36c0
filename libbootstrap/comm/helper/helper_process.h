// A helper process, for work that must not run in the program. It executes the file that contains this code.
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
// program's open files. Its arguments, environment and files contain nothing of a request.
class HelperProcess {
 public:
  // The helper gets this environment, except LD_PRELOAD. kTimeout: it has not begun at the deadline. kUnavailable,
  // kUnsupported: it cannot begin.
  static Result<std::unique_ptr<HelperProcess>> start(const Environment& environment, Deadline deadline);

  // Ends the helper, and does not wait for it. The helper also ends after its last request, or when this process ends.
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

// In the helper: the socket to the rank.
namespace helper_socket {

inline constexpr const char* kBegun = "begun";  // the first message of a helper

// The next request, or an error when no more can come.
Result<std::vector<std::string>> receive();

void send(const std::vector<std::string>& answer);

// Returns when the rank is gone or has closed its end. From then on receive() fails.
void wait_for_end();

}  // namespace helper_socket

// The only argument of a helper that executes the program itself, and not the library.
inline constexpr const char* kHelperArgument = "--helper";

}  // namespace bootstrap
