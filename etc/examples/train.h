// What train.cc and train_cuda.cu share: the network, the samples of a rank, and one step of training.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bootstrap/bootstrap.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// y = b2 + sum over j of w2[j] * tanh(b1[j] + sum over i of w1[j][i] * x[i]). All parameters stand in one array, in the
// order w1, b1, w2, b2; a gradient has the same order and one element more, the sum of the squared errors.
constexpr int kInputs = 8;
constexpr int parameter_count(int hidden) { return hidden * (kInputs + 2) + 1; }

// Samples of this rank: input i of sample s is inputs[s * kInputs + i].
struct Samples {
  std::vector<float> inputs;
  std::vector<float> targets;
  int count() const { return static_cast<int>(targets.size()); }
};

// The parameters of one rank, on its GPU or its CPU. Throws std::runtime_error.
class Model {
 public:
  virtual ~Model() = default;

  // One step of gradient descent. The gradient is the mean over the `batch` samples that all ranks have together, of
  // which `mine` are those of this one; all ranks apply the same gradient, and so keep the same parameters. Returns the
  // mean squared error of the batch before the step. Collective.
  virtual float step(const Samples& mine, int batch, float learning_rate) = 0;

  virtual std::vector<float> parameters() = 0;
};

// Why CUDA cannot use this GPU here; empty when it can.
std::string why_not_cuda(int device);

// `job` is null for a process that trains alone. Collective.
std::unique_ptr<Model> make_cuda_model(bootstrap_t* job, int device, const std::vector<float>& parameters);

// Throws the library's message if one of its calls failed.
inline void check(bootstrap_status_t status) {
  if (status != BOOTSTRAP_OK) throw std::runtime_error(bootstrap_last_error());
}
