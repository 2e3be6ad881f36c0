// What this process has: its environment, CPUs, GPU devices, MPI, and the rank that it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/plan/node_gpus.h"
#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

Environment process_environment();

// process_settings(), but in a program with the rights of another user without the files to load: its caller must not
// name code to run.
Settings trusted_settings(const Environment& environment);

// From a file written by `env -0` or `env`, or from standard input for "-". `env` does not mark the end of a value, so
// that only the first line of a longer one counts. Fails if the text is no environment.
Result<Environment> captured_environment(const std::string& path);

CpuSet cores_of(pid_t process);       // 0: the caller; empty if the kernel refuses
Status bind_to(const CpuSet& cores);  // the calling thread; precondition: not empty

// Whether this process may open a device, without opening it: without a persistence daemon the first open of an NVIDIA
// GPU starts it, which takes seconds. The checks are those of open(2), with the device cgroup of version 1 or 2
// (devcgroup_inode_permission() in Linux' include/linux/device_cgroup.h).
GpuVisibility::Access try_device(const std::string& path);

// "/dev/nvidia0" and so on: the numbered files that exist, also those that may not be opened.
std::vector<std::string> nvidia_device_files();

// The device files of these GPUs, in their order; nvidia_device_files() if no path is known.
std::vector<std::string> device_files_of(const std::vector<Gpu>& gpus);

std::vector<GpuVisibility::Access> try_devices(const std::vector<std::string>& paths);

// Finds a function of a library that dlopen(3) has opened.
template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// Whether this process has MPI loaded. Also true after MPI_Finalize, when Open MPI has closed libpmix.
inline bool is_mpi_loaded() {
  const auto is_mpis = [](dl_phdr_info* object, std::size_t, void*) {
    const std::string_view path = object->dlpi_name;
    return path.substr(path.rfind('/') + 1).starts_with("libmpi") ? 1 : 0;
  };
  return ::dl_iterate_phdr(is_mpis, nullptr) != 0;
}

// The name of the node and its GPUs for a rank of mpirun. Empty, and nothing is read, in a rank of Slurm.
MpirunContext read_mpirun_context(const Environment& environment);

// This process as a rank of its step, from its environment alone. kMissing outside of a step; kUnsupported under mpirun
// on several nodes, where the hosts of the other ranks are unknown.
Result<TaskPlan> read_own_task(const Environment& environment);

}  // namespace bootstrap
