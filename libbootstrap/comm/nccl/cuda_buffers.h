// Two buffers and a stream on a GPU, through CUDA's driver or HIP, to run a collective of NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/nccl/nccl_library.h"
#include "core/util/result.h"

namespace bootstrap {

using GpuAddress = std::uint64_t;  // CUdeviceptr; a pointer in HIP
// NCCL takes addresses of the GPU as pointers; this process never follows them.
// NOLINTNEXTLINE(performance-no-int-to-ptr)
inline void* as_pointer(GpuAddress address) { return reinterpret_cast<void*>(address); }

// "NVIDIA H200". kUnavailable with the reason of CUDA or HIP. Precondition: use_gpu().
Result<std::string> name_of_gpu(int ordinal);

// On the GPU that is current (use_gpu) in the thread that opens it, for threads with the same current GPU. All errors
// are kUnavailable with the reason of CUDA or HIP.
class CudaBuffers {
 public:
  static Result<std::unique_ptr<CudaBuffers>> open(std::size_t bytes);  // of each buffer
  CudaBuffers(const CudaBuffers&) = delete;
  CudaBuffers& operator=(const CudaBuffers&) = delete;
  ~CudaBuffers();  // waits for the work in the stream

  nccl::Stream stream() const { return stream_; }
  GpuAddress from() const { return from_; }
  GpuAddress to() const { return to_; }

  // Each waits for earlier work in the stream, and returns when it is done.
  Status write(GpuAddress to, const void* from, std::size_t bytes) const;
  Status read(void* to, GpuAddress from, std::size_t bytes) const;
  Status copy(GpuAddress to, GpuAddress from, std::size_t bytes) const;
  Status fill(GpuAddress to, unsigned char byte, std::size_t bytes) const;

  Result<bool> is_idle() const;  // the work in the stream is done

 private:
  struct Functions;
  explicit CudaBuffers(std::unique_ptr<Functions> functions);
  Status finish(const char* what, int code) const;

  std::unique_ptr<Functions> functions_;
  nccl::Stream stream_ = nullptr;
  GpuAddress from_ = 0;
  GpuAddress to_ = 0;
};

}  // namespace bootstrap
