// libcudart.so.12 over the CUDA double: a runtime that a program has loaded, with a device chosen before any context.
// SPDX-License-Identifier: Apache-2.0
#define CUDA_DOUBLE_API extern "C" __attribute__((visibility("default"))) int

extern "C" {
int cuInit(unsigned flags);
int cuDeviceGet(int* device, int ordinal);
int cuCtxGetDevice(int* device);
}

namespace {
__attribute__((tls_model("initial-exec"))) thread_local int chosen = 0;
}

CUDA_DOUBLE_API cudaSetDevice(int ordinal) {
  int device = 0;
  if (const int code = cuInit(0); code != 0) return code;
  if (const int code = cuDeviceGet(&device, ordinal); code != 0) return code;
  chosen = ordinal;
  return 0;
}

// A context that is current comes first, as in CUDA.
CUDA_DOUBLE_API cudaGetDevice(int* ordinal) {
  if (const int code = cuInit(0); code != 0) return code;
  if (cuCtxGetDevice(ordinal) != 0) *ordinal = chosen;
  return 0;
}
