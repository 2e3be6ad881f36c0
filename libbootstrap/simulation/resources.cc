// What work waits for in the simulator: cores, threads that do one thing after another, links; and noise.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/resources.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bootstrap::simulation {

void Cores::run(Seconds work, Action done) {
  if (count_ == 0) return queue_.after(work, std::move(done));
  advance();
  jobs_.push_back({clock_ + work, number_++, std::move(done)});
  std::push_heap(jobs_.begin(), jobs_.end(), IsLater());
  plan_next();
}

// All jobs have the same speed at any time, so one clock serves them all.
void Cores::advance() {
  if (!jobs_.empty()) clock_ += (queue_.now() - advanced_) * speed();
  advanced_ = queue_.now();
}

void Cores::plan_next() {
  if (jobs_.empty()) return;
  const auto left = std::max(0.0, jobs_.front().finished_at - clock_);
  queue_.after(left / speed(), [this, plan = ++plan_] {
    if (plan == plan_) finish_first();
  });
}

void Cores::finish_first() {
  advance();
  std::pop_heap(jobs_.begin(), jobs_.end(), IsLater());
  const auto done = std::move(jobs_.back().done);
  jobs_.pop_back();
  plan_next();
  done();
}

void SerialServer::serve(Seconds work, Action done) {
  jobs_.push_back({work, std::move(done)});
  if (jobs_.size() == 1) begin_next();
}

void SerialServer::begin_next() {
  cores_->run(jobs_.front().work, [this] {
    const Action done = std::move(jobs_.front().done);
    jobs_.pop_front();
    if (!jobs_.empty()) begin_next();
    done();
  });
}

// Exponential: what disturbs work on a real machine mostly costs little, and sometimes much.
Noise::Noise(double amount, std::uint64_t seed) : state_(seed) {
  constexpr int kEntries = 4096;
  if (amount <= 0) return;
  double sum = 0;
  for (int i = 0; i < kEntries; ++i) {
    table_.push_back(-std::log((i + 0.5) / kEntries));
    sum += table_.back();
  }
  for (auto& entry : table_) entry = 1 + amount * (entry * kEntries / sum - 1);
}

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers with every compiler, which std::normal_distribution and its
// kin do not promise.
std::uint64_t Noise::next() {
  state_ += 0x9e3779b97f4a7c15U;
  auto mixed = state_;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

}  // namespace bootstrap::simulation
