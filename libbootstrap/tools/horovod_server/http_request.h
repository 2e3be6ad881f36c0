// As much of HTTP/1.1 as Horovod's rendezvous speaks: one request of a connection, read as its bytes come, and the
// answer. Anybody can connect, so that every byte is taken for hostile; RFC 9112 leaves no doubt where a request ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace bootstrap {

enum class HttpMethod : std::uint8_t { kGet, kPut, kDelete };

struct HttpRequest {
  HttpMethod method = HttpMethod::kGet;
  std::string target;  // as it stands in the request: "/global/rank_3"
  std::string body;

  bool operator==(const HttpRequest&) const = default;
};

// The body is shared with the store, so that many clients can be sent a large value at once.
struct HttpResponse {
  int status = 200;
  std::shared_ptr<const std::string> body;  // null: an empty one
  bool is_text = false;                     // a sentence for people; else the bytes of a value
};

// A refusal with its reason, one sentence without a trailing full stop.
HttpResponse http_refusal(int status, std::string_view sentence);

// Status line and headers. Horovod's client finds "Content-Length" in this spelling alone, and otherwise takes the
// first bytes that arrive for the whole body.
std::string http_head(const HttpResponse& response);

struct HttpLimits {
  std::size_t max_head = 8192;  // request line and headers
  std::size_t max_body = 1U << 20;
};

// Reads one request. What it holds is never larger than its limits, and it takes no byte behind the request.
class HttpRequestReader {
 public:
  enum class State : std::uint8_t { kMore, kComplete, kRefused };

  explicit HttpRequestReader(const HttpLimits& limits) : limits_(limits) {}

  // `bytes` is shortened by what was taken. After kComplete or kRefused nothing more is taken.
  State take(std::string_view& bytes);

  // Of kComplete; may be moved from.
  HttpRequest& request() { return request_; }
  // Of kRefused.
  const HttpResponse& refusal() const { return refusal_; }
  // What is held in memory at this moment, also what is reserved and not filled yet.
  std::size_t buffered() const { return request_.body.capacity() + request_.target.capacity() + head_.capacity(); }

 private:
  State refuse(int status, std::string_view sentence);
  State take_head(std::string_view& bytes);
  State read_head();
  State read_request_line(std::string_view line);
  State read_header(std::string_view line);
  State read_length(std::string_view value);

  HttpLimits limits_;
  State state_ = State::kMore;
  bool has_head_ = false;
  std::string head_;
  std::optional<std::size_t> length_;  // Content-Length
  HttpRequest request_;
  HttpResponse refusal_;
};

}  // namespace bootstrap
