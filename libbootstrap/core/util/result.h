// The error channel of the whole project: a value, or one sentence with the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <variant>

namespace bootstrap {

enum class ErrorCode {
  kInvalid,       // a text or number that is not valid
  kMissing,       // something that is required is missing
  kDisagreement,  // two sources contradict each other about the step
  kMisplaced,     // wrong on this node, such as a task in another place; other nodes may not notice
  kUnavailable,   // the system refused: a busy port, a closed device
  kUnsupported,   // understood, and not possible here
  kLimit,         // larger than a limit of this project
  kTimeout,       // not done at the deadline
  kLast = kTimeout,
};

// `message` is one sentence without a trailing full stop: what was tried, with what, why it failed, what to do.
struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;

  bool operator==(const Error&) const = default;
};

// tl::expected 1.0 is not [[nodiscard]]; Result is, because a dropped error leads to a wrong value without a message.
// Callers test it and then use `*result`; `.value()` is not used, since it throws.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<std::monostate>;

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) { return fail({code, std::move(message)}); }

}  // namespace bootstrap
