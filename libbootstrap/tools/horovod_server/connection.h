// One client of the server: a request is read, answered and forgotten, without ever waiting for the client.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "probe/descriptor.h"
#include "tools/horovod_server/http_request.h"
#include "tools/horovod_server/key_value_store.h"

namespace bootstrap {

using TimePoint = std::chrono::steady_clock::time_point;

// What all connections of a server share.
struct ConnectionHouse {
  KeyValueStore& store;
  HttpLimits http;
  std::size_t max_bytes;  // of the store, and of all requests that are not complete yet
  std::chrono::milliseconds read_deadline;
  std::chrono::milliseconds write_deadline;
  std::vector<char> buffer = std::vector<char>(65536);  // what was just received
  std::size_t buffered = 0;
};

class Connection {
 public:
  Connection(Descriptor socket, ConnectionHouse& house, TimePoint now);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  bool is_over() const { return !socket_.is_open(); }
  int descriptor() const { return socket_.get(); }
  short events() const;  // to ask poll(2) for
  TimePoint deadline() const { return deadline_; }

  // Does what can be done at once, and not more than one buffer of it, so that the others get their turn.
  void advance(TimePoint now);
  // Answers before anything is read, with the reason.
  void turn_away(TimePoint now);
  // The deadline has passed: says so where it can, and closes.
  void expire(TimePoint now);
  // Closes so that the client sees an error. To a mere end in the middle of a value Horovod's client pays no heed.
  void abort();

 private:
  enum class Stage { kReading, kWriting, kDraining };

  void receive(TimePoint now);
  void respond(HttpResponse response, TimePoint now);
  void send(TimePoint now);
  void drain();
  void extend(std::size_t count, std::chrono::milliseconds by, TimePoint now);
  void count_buffered();
  void close();

  Descriptor socket_;
  ConnectionHouse& house_;
  Stage stage_ = Stage::kReading;
  TimePoint deadline_;
  std::size_t progress_ = 0;  // bytes since the deadline was set
  HttpRequestReader reader_;
  std::size_t counted_ = 0;  // of our bytes in house_.buffered
  bool has_begun_ = false;
  bool must_drain_ = false;  // the client may still be sending
  std::string head_;
  HttpResponse response_;
  std::size_t sent_ = 0;
};

}  // namespace bootstrap
