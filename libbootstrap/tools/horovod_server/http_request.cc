// As much of HTTP/1.1 as Horovod's rendezvous speaks: one request of a connection, read as its bytes come, and the
// answer. SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/http_request.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return "Refused";  // for people alone; programs go by the number
  }
}

bool equal_ignoring_case(std::string_view text, std::string_view lower) {
  const auto lowered = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [&](char left, char right) { return lowered(left) == right; });
}

bool is_visible(char c) { return c > 0x20 && c < 0x7f; }

std::optional<HttpMethod> method_named(std::string_view name) {
  if (name == "GET") return HttpMethod::kGet;
  if (name == "PUT") return HttpMethod::kPut;
  if (name == "DELETE") return HttpMethod::kDelete;
  return std::nullopt;
}

}  // namespace

HttpResponse http_refusal(int status, std::string_view sentence) {
  return {status, std::make_shared<const std::string>(cat({sentence, "\n"})), true};
}

std::string http_head(const HttpResponse& response) {
  const auto length = response.body == nullptr ? 0 : response.body->size();
  return cat({"HTTP/1.1 ", std::to_string(response.status), " ", reason_of(response.status),
              "\r\nContent-Type: ", response.is_text ? "text/plain" : "application/octet-stream",
              "\r\nContent-Length: ", std::to_string(length), "\r\nConnection: close\r\n\r\n"});
}

HttpRequestReader::State HttpRequestReader::refuse(int status, std::string_view sentence) {
  refusal_ = http_refusal(status, sentence);
  head_ = {};
  request_ = {};
  return state_ = State::kRefused;
}

HttpRequestReader::State HttpRequestReader::take(std::string_view& bytes) {
  if (state_ != State::kMore) return state_;
  if (!has_head_) {
    if (take_head(bytes) != State::kMore || !has_head_) return state_;
  }
  const auto wanted = length_.value_or(0) - request_.body.size();
  const auto count = std::min(wanted, bytes.size());
  auto& body = request_.body;
  // By doubling, as it would grow by itself, but never beyond what was announced.
  const auto needed = body.size() + count;
  if (needed > body.capacity()) body.reserve(std::max(needed, std::min(2 * body.capacity(), body.size() + wanted)));
  body.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  if (count == wanted) state_ = State::kComplete;
  return state_;
}

// Takes bytes up to the empty line, and not one of those behind it.
HttpRequestReader::State HttpRequestReader::take_head(std::string_view& bytes) {
  const auto known = head_.size();
  const auto room = limits_.max_head - std::min(known, limits_.max_head);
  head_.append(bytes.substr(0, room));
  // The empty line may have begun in the bytes before.
  const auto end = head_.find(kEndOfHead, known - std::min(known, kEndOfHead.size() - 1));
  if (end == std::string::npos) {
    const bool is_full = bytes.size() > room;
    bytes.remove_prefix(std::min(bytes.size(), room));
    if (is_full) return refuse(431, "the head of the request is too long");
    return state_;
  }
  bytes.remove_prefix(end + kEndOfHead.size() - known);
  head_.resize(end);
  return read_head();
}

HttpRequestReader::State HttpRequestReader::read_head() {
  std::string_view rest = head_;
  for (bool is_first = true;; is_first = false) {
    const auto end = rest.find("\r\n");
    const auto line = rest.substr(0, end);
    // A lone line feed or carriage return, or a NUL, is where two readers of one request begin to differ.
    const auto is_strange = [](char c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7f; };
    if (std::any_of(line.begin(), line.end(), is_strange)) {
      return refuse(400, "the head of the request has control characters");
    }
    if ((is_first ? read_request_line(line) : read_header(line)) == State::kRefused) return state_;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 2);
  }
  if (request_.method == HttpMethod::kPut && !length_) return refuse(411, "a PUT needs a Content-Length");
  has_head_ = true;
  head_ = {};
  return state_;
}

HttpRequestReader::State HttpRequestReader::read_request_line(std::string_view line) {
  const auto words = split(line, ' ');
  if (words.size() != 3 || (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0")) {
    return refuse(400, "this server speaks HTTP/1.1: a method, a path and the version, with one space between them");
  }
  const auto method = method_named(words[0]);
  if (!method) return refuse(501, "this server knows GET, PUT and DELETE alone");
  if (words[1].empty() || !std::all_of(words[1].begin(), words[1].end(), is_visible)) {
    return refuse(400, "the path has other characters than visible ASCII");
  }
  request_.method = *method;
  request_.target = words[1];
  return state_;
}

HttpRequestReader::State HttpRequestReader::read_header(std::string_view line) {
  const auto colon = line.find(':');
  const auto name = line.substr(0, colon);
  // This also refuses a line that continues the one before (a space in front), and a space before the colon.
  if (colon == std::string_view::npos || name.empty() || !std::all_of(name.begin(), name.end(), is_visible)) {
    return refuse(400, "a header is no name, colon and value");
  }
  if (equal_ignoring_case(name, "transfer-encoding")) {
    return refuse(501, "this server reads bodies with a Content-Length alone, no chunked ones");
  }
  if (equal_ignoring_case(name, "content-length")) return read_length(trim(line.substr(colon + 1)));
  return state_;
}

HttpRequestReader::State HttpRequestReader::read_length(std::string_view value) {
  if (length_) return refuse(400, "the request has two Content-Lengths");
  // So that a number beyond 64 bits, which parse_unsigned does not read, is too large and no nonsense.
  const bool is_number =
      !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return refuse(400, "the Content-Length is no number");
  const auto length = parse_unsigned(value, limits_.max_body);
  if (!length) return refuse(413, "the body is larger than any that Horovod sends in a step of this size");
  length_ = static_cast<std::size_t>(*length);
  return state_;
}

}  // namespace bootstrap
