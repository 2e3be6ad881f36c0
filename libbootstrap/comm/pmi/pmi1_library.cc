// PMI-1 as Slurm's libpmi speaks it with srun. Only for a process of its own: libslurm, which comes with it, may end
// the process that it is in, waits without an end, and works only with all its names visible to all.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmi/pmi1_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <vector>

#include "core/exchange/exchanged_values.h"
#include "core/util/text.h"
#include "probe/file_permissions.h"

namespace bootstrap {
namespace {

constexpr const char* kName = "libpmi.so.0";
constexpr int kSuccess = 0;            // PMI_SUCCESS
constexpr std::size_t kMaxName = 256;  // PMI_MAX_KVSNAME_LEN

// Slurm below a prefix of its own is seldom on the loader's path; PREFIX/bin is in PATH, as srun is.
std::vector<std::string> candidates(const Environment& environment) {
  std::vector<std::string> paths;
  for (const auto folder : split(environment.get("PATH").value_or(""), ':')) {
    if (!may_access(cat({folder, "/srun"}), X_OK)) continue;
    for (const std::string_view library : {"/../lib64/", "/../lib/"}) paths.push_back(cat({folder, library, kName}));
  }
  paths.emplace_back(kName);
  return paths;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<Pmi1Library> Pmi1Library::load(const Environment& environment) {
  // As in a container that does not have the host's /etc/slurm: libslurm would wait for a minute, then end the process.
  const auto configuration = environment.get("SLURM_CONF");
  if (configuration && !may_access(std::string(*configuration), R_OK)) {
    return fail(ErrorCode::kMissing,
                cat({"PMI-1 needs Slurm's configuration, and this task cannot read SLURM_CONF=", *configuration}));
  }
  Pmi1Library pmi;
  void* library = nullptr;
  for (const auto& path : candidates(environment)) {
    // With RTLD_LOCAL the plugins that libslurm opens do not find it, and the loader ends the process.
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    pmi.path_ = path;
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return fail(ErrorCode::kMissing, cat({"cannot load Slurm's PMI-1 library: ", reason == nullptr ? kName : reason,
                                          "; install it (Debian: libpmi0)"}));
  }
  if (!find(library, "PMI_Init", pmi.init_) || !find(library, "PMI_Get_rank", pmi.get_rank_) ||
      !find(library, "PMI_Get_size", pmi.get_size_) || !find(library, "PMI_KVS_Get_my_name", pmi.get_my_name_) ||
      !find(library, "PMI_KVS_Put", pmi.put_) || !find(library, "PMI_KVS_Commit", pmi.commit_) ||
      !find(library, "PMI_Barrier", pmi.barrier_) || !find(library, "PMI_KVS_Get", pmi.get_) ||
      !find(library, "PMI_Finalize", pmi.finalize_)) {
    return fail(ErrorCode::kMissing, cat({pmi.path_, " does not have all functions of PMI-1"}));
  }
  return pmi;
}

Status Pmi1Library::call(const char* name, int code) const {
  if (code == kSuccess) return {};
  return fail(ErrorCode::kUnavailable, cat({name, " of ", path_, " failed (", std::to_string(code), ")"}));
}

Status Pmi1Library::init(std::uint32_t rank, std::uint32_t size) {
  int is_spawned = 0;
  int own_rank = -1;
  int own_size = -1;
  std::array<char, kMaxName> name{};
  auto status = call("PMI_Init", init_(&is_spawned));
  if (status) status = call("PMI_Get_rank", get_rank_(&own_rank));
  if (status) status = call("PMI_Get_size", get_size_(&own_size));
  if (status) status = call("PMI_KVS_Get_my_name", get_my_name_(name.data(), static_cast<int>(name.size())));
  if (!status) return status;
  space_ = name.data();
  if (own_rank == static_cast<int>(rank) && own_size == static_cast<int>(size)) return {};
  return fail(ErrorCode::kMissing, cat({path_, " is not Slurm's PMI-1 library: for this process it returned rank ",
                                        std::to_string(own_rank), " of ", std::to_string(own_size)}));
}

Status Pmi1Library::put(const std::string& key, const std::string& value) const {
  return call("PMI_KVS_Put", put_(space_.c_str(), key.c_str(), value.c_str()));
}

Status Pmi1Library::commit() const { return call("PMI_KVS_Commit", commit_(space_.c_str())); }

Status Pmi1Library::barrier() const { return call("PMI_Barrier", barrier_()); }

std::optional<std::string> Pmi1Library::get(const std::string& key) const {
  std::array<char, kMaxPmiValue> value{};
  if (get_(space_.c_str(), key.c_str(), value.data(), static_cast<int>(value.size())) != kSuccess) return {};
  return std::string(value.data());
}

void Pmi1Library::finalize() const { (void)finalize_(); }

}  // namespace bootstrap
