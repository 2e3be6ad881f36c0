// Requests to the rendezvous of Horovod: bytes from anybody who can connect are refused or answered, within the limits.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "property.h"
#include "tools/horovod_server/http_request.h"
#include "tools/horovod_server/key_value_store.h"

namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace): a test program of one file

constexpr HttpLimits kHttp{.max_head = 200, .max_body = 300};
constexpr StoreLimits kStore{.max_value = 250, .max_bytes = 5000, .max_keys = 8, .max_name = 40};

// A string that grows has room for twice its length, and the target is part of the head.
constexpr std::size_t kMostHeld = kHttp.max_body + 3 * kHttp.max_head + 3 * sizeof(std::string);

struct Heard {
  std::vector<HttpRequest> requests;
  int refusal = 0;
  bool operator==(const Heard&) const = default;
};

// As if each request after the first came on a connection of its own.
Heard hear(std::string_view text, std::size_t piece) {
  Heard heard;
  HttpRequestReader reader(kHttp);
  while (!text.empty()) {
    auto bytes = text.substr(0, piece);
    const auto offered = bytes.size();
    const auto state = reader.take(bytes);
    text.remove_prefix(offered - bytes.size());
    check(reader.buffered() <= kMostHeld, "a request holds no more memory than it may");
    if (state == HttpRequestReader::State::kRefused) {
      heard.refusal = reader.refusal().status;
      return heard;
    }
    check(state == HttpRequestReader::State::kComplete || bytes.empty(), "a reader that asks for more leaves nothing");
    if (state != HttpRequestReader::State::kComplete) continue;
    heard.requests.push_back(reader.request());
    reader = HttpRequestReader(kHttp);
  }
  return heard;
}

void check_answer(KeyValueStore& store, HttpRequest request) {
  const auto method = request.method;
  const auto body = request.body;
  const auto response = store.answer(request);
  check(store.bytes() <= kStore.max_bytes && store.keys() <= kStore.max_keys, "the store holds no more than it may");
  check((store.bytes() == 0) == (store.keys() == 0), "an empty store holds no bytes");
  const auto size = response.body == nullptr ? 0 : response.body->size();
  check(http_head(response).find("\r\nContent-Length: " + std::to_string(size) + "\r\n") != std::string::npos,
        "Horovod finds the length of each answer");
  if (method == HttpMethod::kPut && response.status == 200) {
    HttpRequest again{HttpMethod::kGet, request.target, {}};
    const auto read = store.answer(again);
    check(read.status == 200 && *read.body == body, "what was put is there");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  const auto whole = hear(text, text.size());
  check(whole == hear(text, 1), "how the network cuts the bytes makes no difference");
  KeyValueStore store(kStore);
  for (const auto& request : whole.requests) check_answer(store, request);
  return 0;
}
