// Requests of Horovod's client, and what others send to a port that listens.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/http_request.h"

#include <gtest/gtest.h>

#include <string>

namespace bootstrap {
namespace {

using State = HttpRequestReader::State;

struct Heard {
  State state = State::kMore;
  HttpRequest request;
  int status = 0;
  std::size_t left = 0;  // bytes behind the request
};

Heard hear(std::string_view text, std::size_t piece, const HttpLimits& limits = {}) {
  Heard heard;
  HttpRequestReader reader(limits);
  while (!text.empty() && heard.state == State::kMore) {
    auto bytes = text.substr(0, piece);
    const auto offered = bytes.size();
    heard.state = reader.take(bytes);
    EXPECT_TRUE(heard.state != State::kMore || bytes.empty()) << "it asks for more and leaves some";
    text.remove_prefix(offered - bytes.size());
  }
  heard.left = text.size();
  heard.request = reader.request();
  if (heard.state == State::kRefused) heard.status = reader.refusal().status;
  return heard;
}

int refused(std::string_view text) {
  const auto whole = hear(text, text.size());
  const auto bytes = hear(text, 1);
  EXPECT_EQ(whole.status, bytes.status) << text;
  EXPECT_EQ(whole.state, State::kRefused) << text;
  return whole.status;
}

TEST(HttpRequest, ArrivesWholeHoweverItIsCut) {
  // As elnormous/HTTPRequest writes it.
  const std::string put("PUT /global/rank_0 HTTP/1.1\r\nHost: 10.1.0.1\r\nContent-Length: 5\r\n\r\nno\0de", 71);
  const HttpRequest expected{HttpMethod::kPut, "/global/rank_0", std::string("no\0de", 5)};
  for (std::size_t piece = 1; piece <= put.size(); ++piece) {
    const auto heard = hear(put, piece);
    ASSERT_EQ(heard.state, State::kComplete) << piece;
    EXPECT_EQ(heard.request, expected) << piece;
    const auto cut = hear(std::string_view(put).substr(0, put.size() - 1), piece);
    EXPECT_EQ(cut.state, State::kMore) << "a byte is missing, in pieces of " << piece;
  }
}

TEST(HttpRequest, TakesNoByteBehindIt) {
  const std::string first = "GET /global/0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
  for (std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    const auto heard = hear(first + "GET /global/1", piece);
    EXPECT_EQ(heard.state, State::kComplete);
    EXPECT_EQ(heard.left, 13U);
  }
}

TEST(HttpRequest, KnowsThreeMethods) {
  EXPECT_EQ(hear("GET /a/b HTTP/1.1\r\n\r\n", 4).request.method, HttpMethod::kGet);
  EXPECT_EQ(hear("DELETE /a/b HTTP/1.0\r\n\r\n", 4).request.method, HttpMethod::kDelete);
  for (const auto* other : {"POST /a/b HTTP/1.1\r\n\r\n", "get /a/b HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(refused(other), 501) << other;
  }
}

TEST(HttpRequest, NamesOfHeadersHaveNoCase) {
  for (const auto* name : {"Content-Length", "content-length", "CONTENT-LENGTH"}) {
    const auto heard = hear(std::string("PUT /a/b HTTP/1.1\r\n") + name + ":\t2 \r\n\r\nxy", 3);
    ASSERT_EQ(heard.state, State::kComplete) << name;
    EXPECT_EQ(heard.request.body, "xy");
  }
}

TEST(HttpRequest, RefusesWhatItDoesNotUnderstand) {
  const std::string put = "PUT /a/b HTTP/1.1\r\n";
  EXPECT_EQ(refused(put + "\r\n"), 411);
  EXPECT_EQ(refused(put + "Transfer-Encoding: chunked\r\n\r\n"), 501);
  EXPECT_EQ(refused(put + "Content-Length: 1\r\ntransfer-encoding: chunked\r\n\r\n"), 501);
  EXPECT_EQ(refused(put + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
  for (const auto* length : {"", "-1", "+1", "1 1", "0x1", "1,1"}) {
    EXPECT_EQ(refused(put + "Content-Length: " + length + "\r\n\r\n"), 400) << length;
  }
  EXPECT_EQ(refused(put + "Content-Length : 1\r\n\r\n"), 400);
  EXPECT_EQ(refused(put + "Host: a\r\n folded\r\n\r\n"), 400);
  EXPECT_EQ(refused(put + "no colon\r\n\r\n"), 400);
  EXPECT_EQ(refused("\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET /a/b\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET  /a/b HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET /a/b HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET /a/b HTTP/1.1\nHost: a\r\n\r\n"), 400) << "a lone line feed";
  EXPECT_EQ(refused("GET /a/\xc3\xa4 HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refused(std::string("GET /a/b HTTP/1.1\r\nHost: \0\r\n\r\n", 31)), 400);
}

TEST(HttpRequest, IsAsLongAsItMayBeAndNotLonger) {
  const HttpLimits limits{.max_head = 100, .max_body = 10};
  const std::string head = "PUT /a/b HTTP/1.1\r\nContent-Length: 10\r\nX: ";
  const auto padded = [&](std::size_t size) { return head + std::string(size - head.size() - 4, 'x') + "\r\n\r\n"; };
  for (std::size_t piece : {std::size_t{1}, std::size_t{1000}}) {
    EXPECT_EQ(hear(padded(100) + "0123456789", piece, limits).state, State::kComplete) << piece;
    EXPECT_EQ(hear(padded(101) + "0123456789", piece, limits).status, 431) << piece;
    EXPECT_EQ(hear(std::string(5000, 'x'), piece, limits).status, 431) << piece;
  }
  for (const auto* length : {"11", "99999999999999999999999"}) {
    EXPECT_EQ(hear(std::string("PUT /a/b HTTP/1.1\r\nContent-Length: ") + length + "\r\n\r\n", 7, limits).status, 413);
  }
}

TEST(HttpRequest, IsAnsweredAsHorovodReadsIt) {
  const HttpResponse value{200, std::make_shared<const std::string>("node1")};
  EXPECT_EQ(
      http_head(value),
      "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
  EXPECT_NE(http_head({404, nullptr}).find("HTTP/1.1 404 Not Found\r\n"), std::string::npos);
  EXPECT_NE(http_head({404, nullptr}).find("\r\nContent-Length: 0\r\n"), std::string::npos);
  const auto refusal = http_refusal(507, "the store is full");
  EXPECT_EQ(*refusal.body, "the store is full\n");
  EXPECT_NE(http_head(refusal).find("\r\nContent-Length: 18\r\n"), std::string::npos);
}

}  // namespace
}  // namespace bootstrap
