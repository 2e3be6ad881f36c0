// What this process may use: its CPUs, the device files of GPUs, and libraries that it has loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/plan/node_gpus.h"
#include "core/util/result.h"

namespace bootstrap {

CpuSet cores_of(pid_t process);        // 0: the caller; empty if the kernel refuses
bool is_one_core(const CpuSet& cpus);  // all or some of its hardware threads; false if the machine has no other core
Status bind_to(const CpuSet& cores);   // the calling thread; precondition: not empty

// Whether this process may open a device, without opening it: without a persistence daemon the first open of an NVIDIA
// GPU starts it, which takes seconds. The checks are those of open(2), with the device cgroup of version 1 or 2
// (devcgroup_inode_permission() in Linux' include/linux/device_cgroup.h).
GpuVisibility::Access try_device(const std::string& path);

// "/dev/nvidia0" and so on: the numbered files that exist, also those that may not be opened.
std::vector<std::string> nvidia_device_files();

// The device files of these GPUs, in their order; nvidia_device_files() if no path is known.
std::vector<std::string> device_files_of(const std::vector<Gpu>& gpus);

// The GPUs of the node, and the indices of those that this task can use. The vendor's library counts the GPUs that the
// task can open, and shows those of the list.
struct OwnGpus {
  static constexpr std::uint32_t kNotKnown = UINT32_MAX;

  std::vector<Gpu> of_node;
  std::vector<std::uint32_t> usable;  // by entry of the list; kNotKnown: a GPU whose place is not known
  std::vector<std::uint32_t> own;     // empty: none is

  std::vector<Gpu> own_gpus() const;
  CpuSet cores_near() const;
};

// BOOTSTRAP_GPU and BOOTSTRAP_GPUS name the task's own. If they are not set, and `place` is given: all usable ones if
// the task is alone on its node, or Slurm left it fewer than the step has here; else the entry of its local rank.
OwnGpus find_own_gpus(const Environment& environment, const Place* place = nullptr);

std::vector<GpuVisibility::Access> try_devices(const std::vector<std::string>& paths);

// Finds functions of a library that dlopen(3) has opened. A table of functions is a struct that begins with `Symbols
// find`, and has `= find("NAME")` behind each pointer.
struct Symbols {
  struct Address {
    void* address;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };

  std::optional<void*> library;  // nothing: none of its functions is there
  bool is_whole = true;          // all are there

  Address if_there(const char* name) const { return {library ? ::dlsym(*library, name) : nullptr}; }
  Address operator()(const char* name) {
    const auto found = if_there(name);
    is_whole = is_whole && found.address != nullptr;
    return found;
  }
};

// Whether this process has loaded a library whose file name begins with `begin`. True for "libmpi" even after
// MPI_Finalize, when Open MPI has closed libpmix.
inline bool is_loaded(std::string_view begin) {
  const auto has_name = [](dl_phdr_info* object, std::size_t, void* wanted) {
    const std::string_view path = object->dlpi_name;
    return path.substr(path.rfind('/') + 1).starts_with(*static_cast<std::string_view*>(wanted)) ? 1 : 0;
  };
  return ::dl_iterate_phdr(has_name, &begin) != 0;
}

}  // namespace bootstrap
