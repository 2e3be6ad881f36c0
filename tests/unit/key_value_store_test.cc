// The store of Horovod's rendezvous, held against a model of Horovod's own server, which knows the size of each scope.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/key_value_store.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace bootstrap {
namespace {

struct Answer {
  int status = 0;
  std::string body;
  bool operator==(const Answer&) const = default;
};

class Store {
 public:
  explicit Store(const StoreLimits& limits = {}) : store_(limits) {}

  Answer ask(HttpMethod method, const std::string& path, const std::string& body = "") {
    HttpRequest request{method, path, body};
    const auto response = store_.answer(request);
    return {response.status, response.body == nullptr ? "" : *response.body};
  }
  Answer get(const std::string& path) { return ask(HttpMethod::kGet, path); }
  int put(const std::string& path, const std::string& body) { return ask(HttpMethod::kPut, path, body).status; }
  int remove(const std::string& path) { return ask(HttpMethod::kDelete, path).status; }
  const KeyValueStore& operator*() const { return store_; }

 private:
  KeyValueStore store_;
};

const Answer kNothing{404, ""};

TEST(KeyValueStore, AnswersWhatWasPut) {
  Store store;
  EXPECT_EQ(store.get("/global/rank_0"), kNothing);
  EXPECT_EQ(store.put("/global/rank_0", std::string("a\0b", 3)), 200);
  EXPECT_EQ(store.get("/global/rank_0"), (Answer{200, std::string("a\0b", 3)}));
  EXPECT_EQ(store.get("/local_n1/rank_0"), kNothing) << "each scope has its own keys";
  EXPECT_EQ(store.put("/global/rank_0", ""), 200);
  EXPECT_EQ(store.get("/global/rank_0"), (Answer{200, ""}));
  EXPECT_EQ((*store).keys(), 1U);
}

TEST(KeyValueStore, RefusesOtherPaths) {
  Store store;
  for (const auto* path : {"", "/", "/a", "/a/", "//b", "/a/b/c", "/a/b/", "a/b", "http://host/a/b"}) {
    EXPECT_EQ(store.get(path).status, 400) << path;
    EXPECT_EQ(store.put(path, "x"), 400) << path;
    EXPECT_EQ(store.remove(path), 400) << path;
  }
  EXPECT_EQ((*store).bytes(), 0U);
}

TEST(KeyValueStore, SaysThatElasticHorovodNeedsItsLauncher) {
  Store store;
  const auto answer = store.get("/rank_and_size/node1:0");
  EXPECT_EQ(answer.status, 501);
  EXPECT_NE(answer.body.find("horovodrun"), std::string::npos);
  EXPECT_EQ(store.put("/worker_addresses/0", "x"), 501);
}

TEST(KeyValueStore, KeepsAScopeUntilAllHaveMet) {
  Store store;
  for (const std::string rank : {"0", "1", "2"}) {
    store.put("/global/rank_" + rank, "node");
    store.put("/global/" + rank, "address");
  }
  EXPECT_EQ(store.remove("/global/1"), 200);
  EXPECT_EQ(store.remove("/global/1"), 200) << "the answer was lost, and the client asks again";
  EXPECT_EQ(store.remove("/global/1"), 200);
  EXPECT_EQ(store.remove("/global/0"), 200);
  EXPECT_EQ(store.get("/global/1").status, 200) << "rank 2 may not have read it yet";
  EXPECT_EQ(store.remove("/global/2"), 200);
  EXPECT_EQ(store.get("/global/1"), kNothing);
  EXPECT_EQ(store.get("/global/rank_0"), kNothing);
  EXPECT_EQ((*store).bytes(), 0U);
  EXPECT_EQ((*store).keys(), 0U);
}

TEST(KeyValueStore, ARankThatComesAgainIsNotFinished) {
  Store store;
  store.put("/cross_0/0", "a");
  store.put("/cross_0/1", "b");
  store.remove("/cross_0/0");
  store.put("/cross_0/0", "c");
  store.remove("/cross_0/1");
  EXPECT_EQ(store.get("/cross_0/0"), (Answer{200, "c"}));
  store.remove("/cross_0/0");
  EXPECT_EQ((*store).bytes(), 0U);
}

TEST(KeyValueStore, RemovesKeysOfProcessSetsAtOnce) {
  for (const std::string scope : {"/global_process_set_hash_1f/", "/local_n1_process_set_hash_1f/", "/anything/"}) {
    Store store;
    for (const std::string rank : {"0", "1"}) {
      store.put(scope + "rank_" + rank, "node");
      store.put(scope + rank, "address");
    }
    EXPECT_EQ(store.remove(scope + "absent"), 200);
    EXPECT_EQ(store.remove(scope + "0"), 200);
    EXPECT_EQ(store.get(scope + "0"), kNothing) << scope;
    EXPECT_EQ(store.get(scope + "1").status, 200) << scope;
    EXPECT_EQ(store.remove(scope + "1"), 200);
    EXPECT_EQ((*store).bytes(), 0U) << "what is left of a process set is never asked for again: " << scope;
  }
}

// Horovod's RendezvousHandler, as far as clients can see it: sizes from the host plan, a count of deletes for each
// scope.
class HorovodModel {
 public:
  explicit HorovodModel(std::map<std::string, std::size_t> sizes) : sizes_(std::move(sizes)) {}
  void put(const std::string& scope, const std::string& key, const std::string& value) { kept_[scope][key] = value; }
  Answer get(const std::string& scope, const std::string& key) {
    const auto found = kept_[scope].find(key);
    return found == kept_[scope].end() ? kNothing : Answer{200, found->second};
  }
  void remove(const std::string& scope) {
    if (++finished_[scope] < sizes_.at(scope)) return;
    kept_[scope].clear();
    finished_[scope] = 0;
  }

 private:
  std::map<std::string, std::size_t> sizes_;
  std::map<std::string, std::size_t> finished_;
  std::map<std::string, std::map<std::string, std::string>> kept_;
};

// One rank on its way through one scope; each step is one request. Returns false when it waits for another.
struct Walker {
  std::string scope;
  std::size_t rank;
  std::size_t size;
  std::size_t step = 0;

  bool is_done() const { return step == 2 * size + 3; }
  void go(Store& store, HorovodModel& model) {
    const auto own = std::to_string(rank);
    const auto path = "/" + scope + "/";
    const auto get = [&](const std::string& key) {
      const auto answer = store.get(path + key);
      ASSERT_EQ(answer, model.get(scope, key)) << path << key;
      if (answer.status == 200) ++step;
    };
    if (step == 0 || step == size + 1) {
      const auto key = (step == 0 ? "rank_" : "") + own;
      EXPECT_EQ(store.put(path + key, key + scope), 200);
      model.put(scope, key, key + scope);
      ++step;
    } else if (step < size + 1) {
      get("rank_" + std::to_string(step - 1));
    } else if (step < 2 * size + 2) {
      get(std::to_string(step - size - 2));
    } else {
      EXPECT_EQ(store.remove(path + own), 200);
      model.remove(scope);
      ++step;
    }
  }
};

TEST(KeyValueStore, NeedsNoSizesToDoAsHorovodsServerDoes) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, std::size_t> sizes{{"global", 1 + random() % 12}, {"local_a", 1 + random() % 5}};
    sizes["cross_0"] = 1 + random() % 3;
    Store store;
    HorovodModel model(sizes);
    for (int again = 0; again < 2; ++again) {  // hvd.shutdown(), hvd.init()
      std::vector<Walker> walkers;
      for (const auto& [scope, size] : sizes) {
        for (std::size_t rank = 0; rank < size; ++rank) walkers.push_back({scope, rank, size});
      }
      for (int turn = 0; !walkers.empty(); ++turn) {
        ASSERT_LT(turn, 100000) << "they wait for each other";
        const auto chosen = random() % walkers.size();
        ASSERT_NO_FATAL_FAILURE(walkers[chosen].go(store, model));
        if (walkers[chosen].is_done()) walkers.erase(walkers.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
      ASSERT_EQ((*store).bytes(), 0U);
    }
  }
}

TEST(KeyValueStore, HoldsNoMoreThanItMay) {
  const StoreLimits limits{.max_value = 1000, .max_bytes = 10000, .max_keys = 20, .max_name = 10};
  Store store(limits);
  EXPECT_EQ(store.put("/global/0", std::string(1001, 'x')), 413);
  EXPECT_EQ(store.put("/global/" + std::string(11, '1'), "x"), 414);
  EXPECT_EQ(store.get("/" + std::string(11, 'g') + "/0").status, 414);
  EXPECT_EQ((*store).bytes(), 0U);

  int refused = 0;
  for (int key = 0; key < 12; ++key) {
    refused += store.put("/global/" + std::to_string(key), std::string(1000, 'x')) == 507 ? 1 : 0;
    EXPECT_LE((*store).bytes(), limits.max_bytes);
  }
  EXPECT_GE(refused, 4);
  EXPECT_EQ(store.put("/global/0", std::string(500, 'y')), 200) << "in place of a longer one";
  EXPECT_EQ(store.get("/global/0").body, std::string(500, 'y'));

  Store small(limits);
  for (int key = 0; key < 20; ++key) EXPECT_EQ(small.put("/s/" + std::to_string(key), ""), 200);
  EXPECT_EQ(small.put("/s/20", ""), 507) << "too many keys";
  EXPECT_EQ(small.put("/s/19", "new"), 200);
}

TEST(KeyValueStore, DeletesOfStrangersAreCountedToo) {
  const StoreLimits limits{.max_value = 10, .max_bytes = 6000, .max_keys = 100, .max_name = 64};
  Store store(limits);
  for (int key = 0; key < 15; ++key) ASSERT_EQ(store.put("/global/" + std::to_string(key), ""), 200);
  int refused = 0;
  for (int key = 0; key < 14; ++key) {
    refused += store.remove("/global/" + std::string(60, static_cast<char>('a' + key))) == 507 ? 1 : 0;
    EXPECT_LE((*store).bytes(), limits.max_bytes);
  }
  EXPECT_GT(refused, 0);
}

// What Gloo sends as Horovod pins it: 136 bytes for each other rank, and the names of the hosts.
TEST(KeyValueStore, HasRoomForAllRanks) {
  for (const std::size_t ranks : {1U, 64U, 300U}) {
    Store store(store_limits_for(static_cast<std::uint32_t>(ranks)));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(store.put("/global/rank_" + std::to_string(rank), std::string(64, 'h')), 200);
      ASSERT_EQ(store.put("/global/" + std::to_string(rank), std::string(136 * ranks, 'a')), 200);
    }
  }
  for (const std::uint32_t ranks : {1U, 1024U, 4096U, 1U << 20U}) {
    const auto limits = store_limits_for(ranks);
    EXPECT_GE(limits.max_value, 136UL * ranks);
    EXPECT_GE(limits.max_bytes, std::min<std::size_t>((136UL * ranks + 1024) * ranks, 1UL << 30)) << ranks;
    EXPECT_LE(limits.max_bytes, 1UL << 30);
    EXPECT_GE(limits.max_keys, std::size_t{6} * ranks);
  }
  EXPECT_LT(store_limits_for(256).max_bytes, 16UL << 20) << "what strangers and mistakes can cost a usual step";
}

}  // namespace
}  // namespace bootstrap
