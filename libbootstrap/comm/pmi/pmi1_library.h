// PMI-1 as Slurm's libpmi speaks it with srun. Only for a process of its own: libslurm, which comes with it, may end
// the process that it is in, waits without an end, and works only with all its names visible to all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

class Pmi1Library {
 public:
  // libpmi.so.0 of the Slurm whose srun is in PATH, else the one that the loader finds. It stays loaded.
  static Result<Pmi1Library> load(const Environment& environment);

  // Fails with a libpmi that is not Slurm's: such a one does not take rank and size from Slurm's variables.
  Status init(std::uint32_t rank, std::uint32_t size);
  Status put(const std::string& key, const std::string& value) const;
  Status commit() const;   // sends it to srun
  Status barrier() const;  // of all ranks: waits for ever for one that does not come
  std::optional<std::string> get(const std::string& key) const;  // of what the barrier brought
  void finalize() const;

 private:
  Status call(const char* name, int code) const;

  int (*init_)(int*) = nullptr;
  int (*get_rank_)(int*) = nullptr;
  int (*get_size_)(int*) = nullptr;
  int (*get_my_name_)(char*, int) = nullptr;
  int (*put_)(const char*, const char*, const char*) = nullptr;
  int (*commit_)(const char*) = nullptr;
  int (*barrier_)() = nullptr;
  int (*get_)(const char*, const char*, char*, int) = nullptr;
  int (*finalize_)() = nullptr;
  std::string path_;
  std::string space_;  // of keys and values: "12.0", the step
};

}  // namespace bootstrap
