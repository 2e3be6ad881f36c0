// Whether this process is linked with MPI, or has loaded it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <string_view>

namespace bootstrap {

// Also after MPI_Finalize: Open MPI closes libpmix then, but stays itself.
inline bool is_mpi_loaded() {
  const auto is_mpis = [](dl_phdr_info* object, std::size_t, void*) {
    const std::string_view path = object->dlpi_name;
    return path.substr(path.rfind('/') + 1).starts_with("libmpi") ? 1 : 0;
  };
  return ::dl_iterate_phdr(is_mpis, nullptr) != 0;
}

}  // namespace bootstrap
