// The error channel of the whole project: a value, or one sentence with the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <variant>

namespace bootstrap {

enum class ErrorCode {
  kInvalid,       // a text or number that does not mean what it should
  kMissing,       // something that must be there is not
  kDisagreement,  // two sources contradict each other about the step
  kMisplaced,     // a task of this node is not where it should be; other nodes may not notice
  kUnavailable,   // the system refused: a busy port, a closed device
  kUnsupported,   // understood, and not possible here
  kLimit,         // larger than we are willing to handle
  kTimeout,       // not there when the deadline passed
  kLast = kTimeout,
};

// `message` is one sentence without a trailing full stop: what was tried, with what, why it failed, what to do.
struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;

  bool operator==(const Error&) const = default;
};

// tl::expected 1.0 is not [[nodiscard]]; a dropped error would be a silent wrong value, so this one is.
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
