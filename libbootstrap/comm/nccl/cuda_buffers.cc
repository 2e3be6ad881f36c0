// Two buffers and a stream on a GPU, through CUDA's driver or HIP, to run a collective of NCCL.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/cuda_buffers.h"

#include <array>
#include <utility>

#include "comm/nccl/cuda_device.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// From cuda.h; hip_runtime_api.h has the same numbers. CUDA's macros stand for the names with _v2 since CUDA 3.2
// (streams: 4.0). HIP's addresses are pointers, which are passed like CUDA's numbers.
constexpr int kNotReady = 600;
constexpr unsigned kOrderedStream = 0;  // ordered with the copies of the thread

template <class Function>
bool take(const GpuCall& call, Function& member) {
  member = reinterpret_cast<Function>(find_gpu_function(call));
  return member != nullptr;
}

tl::unexpected<Error> refused(std::string_view what, int code) {
  return fail(ErrorCode::kUnavailable,
              cat({"the ", used_gpu_libraries().runtime, " call for ", what, " failed: ", gpu_reason(code)}));
}

}  // namespace

struct CudaBuffers::Functions {
  int (*create_stream)(nccl::Stream* stream, unsigned flags) = nullptr;
  int (*destroy_stream)(nccl::Stream stream) = nullptr;
  int (*query_stream)(nccl::Stream stream) = nullptr;
  int (*wait_for_stream)(nccl::Stream stream) = nullptr;
  int (*allocate)(GpuAddress* address, std::size_t bytes) = nullptr;
  int (*free)(GpuAddress address) = nullptr;
  int (*write)(GpuAddress to, const void* from, std::size_t bytes) = nullptr;
  int (*read)(void* to, GpuAddress from, std::size_t bytes) = nullptr;
  int (*copy)(GpuAddress to, GpuAddress from, std::size_t bytes) = nullptr;
  int (*fill)(GpuAddress to, unsigned char byte, std::size_t bytes) = nullptr;

  bool find() {
    return take({"cuStreamCreate", "hipStreamCreateWithFlags"}, create_stream) &&
           take({"cuStreamDestroy_v2", "hipStreamDestroy"}, destroy_stream) &&
           take({"cuStreamQuery", "hipStreamQuery"}, query_stream) &&
           take({"cuStreamSynchronize", "hipStreamSynchronize"}, wait_for_stream) &&
           take({"cuMemAlloc_v2", "hipMalloc"}, allocate) && take({"cuMemFree_v2", "hipFree"}, free) &&
           take({"cuMemcpyHtoD_v2", "hipMemcpyHtoD"}, write) && take({"cuMemcpyDtoH_v2", "hipMemcpyDtoH"}, read) &&
           take({"cuMemcpyDtoD_v2", "hipMemcpyDtoD"}, copy) && take({"cuMemsetD8_v2", "hipMemsetD8"}, fill);
  }
};

Result<std::string> name_of_gpu(int ordinal) {
  int (*get_device)(int* device, int ordinal) = nullptr;
  int (*get_name)(char* name, int length, int device) = nullptr;
  if (!take({"cuDeviceGet", "hipDeviceGet"}, get_device) || !take({"cuDeviceGetName", "hipDeviceGetName"}, get_name)) {
    return fail(ErrorCode::kUnavailable, cat({used_gpu_libraries().runtime_file, " cannot name its devices"}));
  }
  std::array<char, 128> name{};
  int device = 0;
  int code = get_device(&device, ordinal);
  if (code == kGpuSuccess) code = get_name(name.data(), static_cast<int>(name.size()) - 1, device);
  if (code != kGpuSuccess) return refused(cat({"the name of device ", std::to_string(ordinal)}), code);
  return std::string(name.data());
}

CudaBuffers::CudaBuffers(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Result<std::unique_ptr<CudaBuffers>> CudaBuffers::open(std::size_t bytes) {
  auto functions = std::make_unique<Functions>();
  if (!functions->find()) {
    return fail(ErrorCode::kUnavailable, cat({used_gpu_libraries().runtime_file, " is missing or incomplete"}));
  }
  std::unique_ptr<CudaBuffers> work(new CudaBuffers(std::move(functions)));
  int code = work->functions_->create_stream(&work->stream_, kOrderedStream);
  if (code != kGpuSuccess) return refused("a stream", code);
  for (auto* const address : {&work->from_, &work->to_}) {
    code = work->functions_->allocate(address, bytes);
    if (code != kGpuSuccess) return refused(cat({"two buffers of ", std::to_string(bytes), " bytes"}), code);
  }
  return work;
}

CudaBuffers::~CudaBuffers() {
  for (const auto address : {from_, to_}) {
    if (address != 0) (void)functions_->free(address);
  }
  if (stream_ != nullptr) (void)functions_->destroy_stream(stream_);
}

Status CudaBuffers::finish(const char* what, int code) const {
  // The call for a copy within the GPU returns before the copy is done.
  if (code == kGpuSuccess) code = functions_->wait_for_stream(nullptr);
  if (code != kGpuSuccess) return refused(what, code);
  return {};
}

Status CudaBuffers::write(GpuAddress to, const void* from, std::size_t bytes) const {
  return finish("a copy to it", functions_->write(to, from, bytes));
}

Status CudaBuffers::read(void* to, GpuAddress from, std::size_t bytes) const {
  return finish("a copy from it", functions_->read(to, from, bytes));
}

Status CudaBuffers::copy(GpuAddress to, GpuAddress from, std::size_t bytes) const {
  return finish("a copy within it", functions_->copy(to, from, bytes));
}

Status CudaBuffers::fill(GpuAddress to, unsigned char byte, std::size_t bytes) const {
  return finish("a fill", functions_->fill(to, byte, bytes));
}

Result<bool> CudaBuffers::is_idle() const {
  const int code = functions_->query_stream(stream_);
  if (code != kGpuSuccess && code != kNotReady) return refused("the work in its stream", code);
  return code == kGpuSuccess;
}

}  // namespace bootstrap
