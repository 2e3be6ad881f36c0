// The samples that train.cc learns from, and its network on a CPU: gradients over the exchange of the library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "train.h"

// A number in [-1, 1) for each (seed, index): splitmix64, so that sample i is the same on every rank.
inline float uniform(int seed, std::uint64_t index) {
  std::uint64_t mixed = index + static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  mixed ^= mixed >> 31;
  return static_cast<float>(mixed >> 40) / 8388608.0F - 1.0F;
}

inline float target_of(const float* x) { return std::sin(2.0F * x[0] + x[1]) + 0.5F * x[2] - 0.3F * x[3]; }

// Samples first .. last - 1 of the endless sequence of `seed`.
inline Samples make_samples(int seed, std::int64_t first, std::int64_t last) {
  Samples samples;
  for (auto sample = first; sample < last; ++sample) {
    float x[kInputs];
    for (int i = 0; i < kInputs; ++i) x[i] = uniform(seed, static_cast<std::uint64_t>(sample * kInputs + i));
    samples.inputs.insert(samples.inputs.end(), x, x + kInputs);
    samples.targets.push_back(target_of(x));
  }
  return samples;
}

inline std::vector<float> first_parameters(int seed, int hidden) {
  std::vector<float> parameters(static_cast<std::size_t>(parameter_count(hidden)), 0.0F);
  const auto width = static_cast<std::size_t>(hidden);
  const auto fill = [&](std::size_t first, std::size_t last, float largest) {
    for (auto at = first; at < last; ++at) parameters[at] = largest * uniform(~seed, at);
  };
  fill(0, width * kInputs, 1.0F / std::sqrt(static_cast<float>(kInputs)));                           // w1
  fill(width * (kInputs + 1), width * (kInputs + 2), 1.0F / std::sqrt(static_cast<float>(hidden)));  // w2
  return parameters;
}

// Output for x; the hidden layer stays in `hidden`, which has the size of that layer.
inline float forward(const std::vector<float>& parameters, const float* x, std::vector<float>& hidden) {
  const auto width = hidden.size();
  const float* const b1 = &parameters[width * kInputs];
  const float* const w2 = b1 + width;
  float y = w2[width];
  for (std::size_t j = 0; j < width; ++j) {
    float sum = b1[j];
    for (std::size_t i = 0; i < kInputs; ++i) sum += parameters[j * kInputs + i] * x[i];
    hidden[j] = std::tanh(sum);
    y += w2[j] * hidden[j];
  }
  return y;
}

inline float mean_squared_error(const std::vector<float>& parameters, int width, const Samples& samples) {
  std::vector<float> hidden(static_cast<std::size_t>(width));
  double sum = 0.0;
  for (std::size_t s = 0; s < samples.targets.size(); ++s) {
    const double error = forward(parameters, &samples.inputs[s * kInputs], hidden) - samples.targets[s];
    sum += error * error;
  }
  return static_cast<float>(sum / samples.count());
}

class CpuModel : public Model {
 public:
  CpuModel(bootstrap_t* job, int hidden, std::vector<float> parameters)
      : job_(job), width_(static_cast<std::size_t>(hidden)), parameters_(std::move(parameters)) {}

  float step(const Samples& mine, int batch, float learning_rate) override {
    auto gradient = sum_over_ranks(gradient_of(mine));
    const float scale = 1.0F / static_cast<float>(batch);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i] -= learning_rate * scale * gradient[i];
    return scale * gradient.back();
  }

  std::vector<float> parameters() override { return parameters_; }

 private:
  // Sums over the samples of this rank; the last element is that of the squared errors.
  std::vector<float> gradient_of(const Samples& mine) const {
    std::vector<float> gradient(parameters_.size() + 1, 0.0F);
    std::vector<float> hidden(width_);
    float* const b1 = &gradient[width_ * kInputs];
    float* const w2 = b1 + width_;
    for (std::size_t s = 0; s < mine.targets.size(); ++s) {
      const float* const x = &mine.inputs[s * kInputs];
      const float error = forward(parameters_, x, hidden) - mine.targets[s];
      const float slope = 2.0F * error;
      for (std::size_t j = 0; j < width_; ++j) {
        const float inner = slope * parameters_[width_ * (kInputs + 1) + j] * (1.0F - hidden[j] * hidden[j]);
        for (std::size_t i = 0; i < kInputs; ++i) gradient[j * kInputs + i] += inner * x[i];
        b1[j] += inner;
        w2[j] += slope * hidden[j];
      }
      w2[width_] += slope;
      gradient.back() += error * error;
    }
    return gradient;
  }

  // In order of rank, so that all ranks get the same sums to the bit.
  std::vector<float> sum_over_ranks(const std::vector<float>& mine) const {
    if (job_ == nullptr) return mine;
    const auto ranks = static_cast<std::size_t>(bootstrap_size(job_));
    std::vector<float> all(mine.size() * ranks);
    check(bootstrap_exchange(job_, mine.data(), mine.size() * sizeof(float), all.data()));
    std::vector<float> sum(mine.size(), 0.0F);
    for (std::size_t at = 0; at < all.size(); ++at) sum[at % mine.size()] += all[at];
    return sum;
  }

  bootstrap_t* job_;
  std::size_t width_;
  std::vector<float> parameters_;
};
