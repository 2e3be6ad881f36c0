// What Horovod's ranks tell each other before they are connected: the store behind its Gloo rendezvous, without
// network.
//
// The contract is that of Horovod 0.28 (horovod/runner/http/http_server.py, horovod/common/gloo/http_store.cc and
// gloo_context.cc): PUT /scope/key stores a value, GET reads it or says 404, DELETE /scope/key says that a rank has met
// all others of the scope. The scopes of a step are "global", "local_HOSTNAME" and "cross_LOCALRANK".
//
// Horovod's own server is told how many ranks each scope has, and clears it when so many have deleted: nobody may lose
// a key that another has not read yet, and a second hvd.init() must not find the keys of the first. Here nobody has to
// know the sizes. A rank deletes when it has read the keys of all others, and Gloo's key of a rank is its bare number.
// So at the first DELETE the numbers that were put are the ranks of the scope, and it is cleared when as many have
// deleted.
//
// In other scopes, those of process sets, a key is removed at once, as Horovod does. With the last number of the scope
// go the other keys of the ranks (rank_N), which Horovod's server keeps for ever. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tools/horovod_server/http_request.h"

namespace bootstrap {

struct StoreLimits {
  std::size_t max_value = 1U << 20;   // of one PUT
  std::size_t max_bytes = 64U << 20;  // names, values and what it costs to keep them
  std::size_t max_keys = 1U << 16;    // of all scopes
  std::size_t max_name = 512;         // of a scope, and of a key

  bool operator==(const StoreLimits&) const = default;
};

// Gloo up to 2023 (Horovod pins d96897b) sends 136 bytes for each pair of ranks: 136 N for a rank, 136 N^2 for all.
StoreLimits store_limits_for(std::uint32_t ranks);

class KeyValueStore {
 public:
  explicit KeyValueStore(const StoreLimits& limits) : limits_(limits) {}

  // Takes the body out of a PUT.
  HttpResponse answer(HttpRequest& request);

  std::size_t bytes() const { return bytes_; }
  std::size_t keys() const { return keys_; }

 private:
  using Value = std::shared_ptr<const std::string>;
  struct Scope {
    std::map<std::string, Value, std::less<>> values;
    std::set<std::string, std::less<>> finished;  // keys that were deleted while others may still need them
    std::size_t members = 0;                      // keys of `values` that are numbers
  };
  using Scopes = std::map<std::string, Scope, std::less<>>;

  static std::optional<std::size_t> size_of(const Scope& scope, std::string_view key);
  HttpResponse put(std::string_view scope_name, std::string_view key, std::string& body);
  HttpResponse get(std::string_view scope_name, std::string_view key) const;
  HttpResponse remove(std::string_view scope_name, std::string_view key);
  HttpResponse finish(Scopes::iterator scope, std::string_view key);
  void remove_at_once(Scopes::iterator scope, std::string_view key);
  void clear(Scopes::iterator scope);

  StoreLimits limits_;
  Scopes scopes_;
  std::size_t bytes_ = 0;
  std::size_t keys_ = 0;
};

}  // namespace bootstrap
