// The network of train.cc on a GPU: three kernels, and ncclAllReduce over a communicator of bootstrap_nccl_comm.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <nccl.h>

#include <vector>

#include "train.h"

namespace {

constexpr int kThreads = 128;
constexpr int blocks(int threads) { return (threads + kThreads - 1) / kThreads; }

// Parameters as train.h lays them out.
struct Layers {
  float* w1;
  float* b1;
  float* w2;
  float* b2;
};

__device__ Layers layers_of(float* parameters, int width) {
  float* const b1 = parameters + width * kInputs;
  return {parameters, b1, b1 + width, b1 + 2 * width};
}

// One thread for each sample: the outputs of the hidden layer, and the error.
__global__ void forward(float* parameters, int width, const float* inputs, const float* targets, int samples,
                        float* hidden, float* errors) {
  const int sample = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (sample >= samples) return;
  const auto layers = layers_of(parameters, width);
  float y = *layers.b2;
  for (int j = 0; j < width; ++j) {
    float sum = layers.b1[j];
    for (int i = 0; i < kInputs; ++i) sum += layers.w1[j * kInputs + i] * inputs[sample * kInputs + i];
    const float h = tanhf(sum);
    hidden[sample * width + j] = h;
    y += layers.w2[j] * h;
  }
  errors[sample] = y - targets[sample];
}

// One thread for each parameter sums over the samples, always in the same order: no atomics. One more thread sums the
// squared errors.
__global__ void backward(float* parameters, int count, int width, const float* inputs, int samples, const float* hidden,
                         const float* errors, float* gradient) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at > count) return;
  const auto layers = layers_of(parameters, width);
  const int weights = width * kInputs;
  float sum = 0.0F;
  for (int sample = 0; sample < samples; ++sample) {
    const float error = errors[sample];
    const float* const h = hidden + sample * width;
    if (at == count) {
      sum += error * error;
    } else if (at == count - 1) {
      sum += 2.0F * error;
    } else if (at >= weights + width) {
      sum += 2.0F * error * h[at - weights - width];
    } else {
      const int j = at < weights ? at / kInputs : at - weights;
      const float inner = 2.0F * error * layers.w2[j] * (1.0F - h[j] * h[j]);
      sum += at < weights ? inner * inputs[sample * kInputs + at % kInputs] : inner;
    }
  }
  gradient[at] = sum;
}

__global__ void descend(float* parameters, int count, const float* gradient, float rate) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < count) parameters[at] -= rate * gradient[at];
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

void check(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result));
}

// An array on the GPU that grows as needed.
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { (void)cudaFree(data_); }

  float* get() const { return data_; }

  void reserve(std::size_t count) {
    if (count <= count_) return;
    (void)cudaFree(data_);
    data_ = nullptr;
    count_ = 0;
    check(cudaMalloc(&data_, count * sizeof(float)));
    count_ = count;
  }

  void load(const std::vector<float>& from) {
    reserve(from.size());
    check(cudaMemcpy(data_, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice));
  }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

class CudaModel : public Model {
 public:
  CudaModel(bootstrap_t* job, int device, const std::vector<float>& parameters)
      : count_(static_cast<int>(parameters.size())), width_((count_ - 1) / (kInputs + 2)) {
    check(cudaSetDevice(device));
    parameters_.load(parameters);
    gradient_.reserve(parameters.size() + 1);
    if (job != nullptr) ::check(bootstrap_nccl_comm(job, BOOTSTRAP_WORLD, nullptr, &communicator_));
  }

  ~CudaModel() override {
    if (communicator_ != nullptr) (void)ncclCommDestroy(communicator_);
  }

  // All on the default stream, one after the other.
  float step(const Samples& mine, int batch, float learning_rate) override {
    const int samples = mine.count();
    inputs_.load(mine.inputs);
    targets_.load(mine.targets);
    hidden_.reserve(mine.targets.size() * static_cast<std::size_t>(width_));
    errors_.reserve(mine.targets.size());
    if (samples > 0) {  // a rank may have none, when there are more ranks than samples
      forward<<<blocks(samples), kThreads>>>(parameters_.get(), width_, inputs_.get(), targets_.get(), samples,
                                             hidden_.get(), errors_.get());
    }
    backward<<<blocks(count_ + 1), kThreads>>>(parameters_.get(), count_, width_, inputs_.get(), samples, hidden_.get(),
                                               errors_.get(), gradient_.get());
    const auto elements = static_cast<std::size_t>(count_) + 1;
    if (communicator_ != nullptr) {
      check(ncclAllReduce(gradient_.get(), gradient_.get(), elements, ncclFloat, ncclSum, communicator_, nullptr));
    }
    const float scale = 1.0F / static_cast<float>(batch);
    descend<<<blocks(count_), kThreads>>>(parameters_.get(), count_, gradient_.get(), learning_rate * scale);
    check(cudaGetLastError());
    float squares = 0.0F;
    check(cudaMemcpy(&squares, gradient_.get() + count_, sizeof squares, cudaMemcpyDeviceToHost));
    return scale * squares;
  }

  std::vector<float> parameters() override {
    std::vector<float> all(static_cast<std::size_t>(count_));
    check(cudaMemcpy(all.data(), parameters_.get(), all.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return all;
  }

 private:
  int count_;
  int width_;
  ncclComm_t communicator_ = nullptr;
  Array parameters_, gradient_, inputs_, targets_, hidden_, errors_;
};

}  // namespace

std::string why_not_cuda(int device) {
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("CUDA: ") + cudaGetErrorString(error);
  if (device < count) return {};
  return "its GPU has the number " + std::to_string(device) + ", and CUDA finds " + std::to_string(count);
}

std::unique_ptr<Model> make_cuda_model(bootstrap_t* job, int device, const std::vector<float>& parameters) {
  return std::make_unique<CudaModel>(job, device, parameters);
}
