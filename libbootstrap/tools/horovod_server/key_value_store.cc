// What Horovod's ranks tell each other before they are connected: the store behind its Gloo rendezvous, without
// network. SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/key_value_store.h"

#include <algorithm>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// What maps and shared pointers add to a key and its value, about; so that a million empty keys are not taken for
// nothing.
constexpr std::size_t kCostOfKey = 256;
constexpr std::size_t kCostOfScope = 512;

bool is_number(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Those that each step has, also by the name that Horovod used until 0.19 ("global_").
bool is_scope_of_step(std::string_view name) {
  if (name.find("_process_set_hash_") != std::string_view::npos) return false;
  return name == "global" || name == "global_" || name.starts_with("local_") || name.starts_with("cross_");
}

bool is_elastic(std::string_view scope) { return scope == "rank_and_size" || scope == "worker_addresses"; }

std::size_t cost_of(std::string_view key, std::size_t value) { return kCostOfKey + key.size() + value; }
std::size_t cost_of_scope(std::string_view name) { return kCostOfScope + name.size(); }
std::size_t cost_of_finished(std::string_view key) { return kCostOfKey + key.size(); }

HttpResponse full() { return http_refusal(507, "the store is full: a step of this size does not need so much"); }

}  // namespace

StoreLimits store_limits_for(std::uint32_t ranks) {
  // A quarter more than Gloo needs, on top of what a small step never reaches: 20 MiB for 330 ranks.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  const std::uint64_t count = ranks;
  StoreLimits limits;
  limits.max_value = static_cast<std::size_t>((64U << 10) + 256 * count);
  limits.max_bytes = static_cast<std::size_t>(std::min<std::uint64_t>((2U << 20) + 170 * count * count, kMost));
  // rank_N and N in each of three scopes, and the same for process sets that are made at the same time.
  limits.max_keys = static_cast<std::size_t>(1024 + 32 * count);
  return limits;
}

HttpResponse KeyValueStore::answer(HttpRequest& request) {
  const auto parts = split(request.target, '/');
  if (parts.size() != 3 || !parts[0].empty() || parts[1].empty() || parts[2].empty()) {
    return http_refusal(400, "a path is /scope/key: this server is where the ranks of a Horovod program meet");
  }
  const auto scope = parts[1];
  const auto key = parts[2];
  if (is_elastic(scope)) {
    return http_refusal(501, "elastic Horovod needs horovodrun: in a step of Slurm the ranks are fixed");
  }
  if (std::max(scope.size(), key.size()) > limits_.max_name) return http_refusal(414, "the scope or key is too long");
  switch (request.method) {
    case HttpMethod::kGet:
      return get(scope, key);
    case HttpMethod::kPut:
      return put(scope, key, request.body);
    case HttpMethod::kDelete:
      return remove(scope, key);
  }
  return http_refusal(501, "this server knows GET, PUT and DELETE alone");
}

HttpResponse KeyValueStore::get(std::string_view scope_name, std::string_view key) const {
  const auto scope = scopes_.find(scope_name);
  if (scope == scopes_.end()) return {404, nullptr};
  const auto value = scope->second.values.find(key);
  if (value == scope->second.values.end()) return {404, nullptr};
  return {200, value->second};
}

std::optional<std::size_t> KeyValueStore::size_of(const Scope& scope, std::string_view key) {
  const auto found = scope.values.find(key);
  if (found == scope.values.end()) return std::nullopt;
  return found->second->size();
}

HttpResponse KeyValueStore::put(std::string_view scope_name, std::string_view key, std::string& body) {
  if (body.size() > limits_.max_value) return http_refusal(413, "the value is too large for this store");
  auto scope = scopes_.find(scope_name);
  const bool is_new_scope = scope == scopes_.end();
  const auto old = is_new_scope ? std::nullopt : size_of(scope->second, key);
  const auto freed = old ? cost_of(key, *old) : 0;
  const auto taken = cost_of(key, body.size());
  const auto needed = bytes_ - freed + taken + (is_new_scope ? cost_of_scope(scope_name) : 0);
  if (needed > limits_.max_bytes || (!old && keys_ >= limits_.max_keys)) return full();

  // Each step leaves the counts right, also if the next one finds no memory.
  body.shrink_to_fit();
  auto value = std::make_shared<const std::string>(std::move(body));
  if (is_new_scope) {
    scope = scopes_.emplace(scope_name, Scope()).first;
    bytes_ += cost_of_scope(scope_name);
  }
  auto& content = scope->second;
  content.values.insert_or_assign(std::string(key), std::move(value));
  bytes_ = bytes_ - freed + taken;
  if (!old) {
    ++keys_;
    if (is_number(key)) ++content.members;
  } else if (content.finished.erase(std::string(key)) > 0) {
    bytes_ -= cost_of_finished(key);  // it comes again, in the next hvd.init()
  }
  return {200, nullptr};
}

HttpResponse KeyValueStore::remove(std::string_view scope_name, std::string_view key) {
  const auto scope = scopes_.find(scope_name);
  if (scope == scopes_.end()) return {200, nullptr};
  if (is_scope_of_step(scope_name)) return finish(scope, key);
  remove_at_once(scope, key);
  return {200, nullptr};
}

// A key counts once, since a client whose answer was lost asks again. It need not be one that was put: a Horovod that
// deletes by the rank in the step, in a scope of a node, is counted as well.
HttpResponse KeyValueStore::finish(Scopes::iterator scope, std::string_view key) {
  auto& content = scope->second;
  if (content.finished.find(key) == content.finished.end()) {
    if (bytes_ + cost_of_finished(key) > limits_.max_bytes) return full();
    content.finished.emplace(key);
    bytes_ += cost_of_finished(key);
  }
  if (content.finished.size() >= content.members) clear(scope);
  return {200, nullptr};
}

void KeyValueStore::remove_at_once(Scopes::iterator scope, std::string_view key) {
  auto& content = scope->second;
  const auto found = content.values.find(key);
  if (found == content.values.end()) return;
  bytes_ -= cost_of(key, found->second->size());
  --keys_;
  content.values.erase(found);
  const bool was_last_member = is_number(key) && --content.members == 0;
  if (was_last_member || content.values.empty()) clear(scope);
}

void KeyValueStore::clear(Scopes::iterator scope) {
  for (const auto& [key, value] : scope->second.values) bytes_ -= cost_of(key, value->size());
  for (const auto& key : scope->second.finished) bytes_ -= cost_of_finished(key);
  bytes_ -= cost_of_scope(scope->first);
  keys_ -= scope->second.values.size();
  scopes_.erase(scope);
}

}  // namespace bootstrap
