// The NCCL double of each version, loaded: a process may have several, as some programs do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/nccl/nccl_library.h"
#include "nccl_double.h"

namespace bootstrap {

inline constexpr const char* kRccl = "rccl-2.27.7";  // in place of a version of NCCL

inline std::string nccl_double_path(const std::string& version) {
  if (version == kRccl) return std::string(DOUBLES_DIR) + "/" + version + "/librccl.so.1";
  return std::string(DOUBLES_DIR) + "/nccl-" + version + "/libnccl.so.2";
}

// A function of a copy that was loaded with RTLD_LOCAL, as Python loads libraries.
template <class Function>
Function nccl_double_function(const std::string& version, const char* name) {
  void* const library = ::dlopen(nccl_double_path(version).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

inline nccl::Functions nccl_double(const std::string& version) {
  return nccl::functions_in(::dlopen(nccl_double_path(version).c_str(), RTLD_NOW | RTLD_LOCAL));
}

}  // namespace bootstrap
