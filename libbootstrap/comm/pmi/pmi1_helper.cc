// One exchange over PMI-1, made by a helper process: Slurm's libpmi brings libslurm, which may end its process, waits
// without a limit, and works only if all its symbols are global.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmi/pmi1_helper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "comm/pmix/pmix_library.h"
#include "core/exchange/exchanged_values.h"
#include "core/exchange/libpmi_release.h"
#include "core/settings/variables.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr const char* kPmiLibrary = "libpmi.so.0";

class Pmi1Library {
 public:
  // libpmi.so.0 of the Slurm whose srun is in PATH, else the one that the loader finds. It stays loaded.
  static Result<Pmi1Library> load(const Environment& environment);

  // Fails if the library is not Slurm's: others do not take rank and size from Slurm's variables.
  Status init(std::uint32_t rank, std::uint32_t size) {
    int is_spawned = 0;
    int own_rank = -1;
    int own_size = -1;
    std::array<char, 256> name{};  // PMI_MAX_KVSNAME_LEN
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
  Status put(const std::string& key, const std::string& value) const {
    return call("PMI_KVS_Put", put_(space_.c_str(), key.c_str(), value.c_str()));
  }
  Status commit() const { return call("PMI_KVS_Commit", commit_(space_.c_str())); }  // sends the values to srun
  Status barrier() const { return call("PMI_Barrier", barrier_()); }  // of all ranks: waits forever for a missing one
  std::optional<std::string> get(const std::string& key) const {      // a value that the barrier brought
    std::array<char, kMaxPmiValue> value{};
    if (get_(space_.c_str(), key.c_str(), value.data(), static_cast<int>(value.size())) != kSuccess) return {};
    return std::string(value.data());
  }
  void finalize() const { (void)finalize_(); }

 private:
  static constexpr int kSuccess = 0;  // PMI_SUCCESS

  // Why the step cannot use it, without a call of PMI. Two libslurm in a process would share their symbols.
  std::string look_at(const SlurmOfStep& slurm) {
    void* const tried = ::dlopen(path_.c_str(), RTLD_LAZY | RTLD_LOCAL);
    long (*api_version)() = nullptr;
    int (*first)(int*) = nullptr;
    Dl_info info{};
    if (tried == nullptr || !find_symbol(tried, "slurm_api_version", api_version)) return {};
    if (find_symbol(tried, "PMI_Init", first) && ::dladdr(reinterpret_cast<void*>(first), &info) != 0) {
      path_ = info.dli_fname;
    }
    release_ = slurm_of_api(api_version());
    auto why_not = why_not_libpmi(slurm, api_version(), path_);
    if (!why_not.empty()) (void)::dlclose(tried);
    return why_not;
  }

  Status call(const char* name, int code) const {
    if (code == kSuccess) return {};
    const auto of = release_.empty() ? std::string() : cat({" (", release_, ")"});
    return fail(ErrorCode::kUnavailable, cat({name, " of ", path_, of, " failed (", std::to_string(code), ")"}));
  }

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
  std::string release_;  // "Slurm 22.05"
  std::string space_;    // of keys and values: "12.0", the step
};

// A Slurm with its own prefix is seldom in the loader's path, but PREFIX/bin is in PATH, as srun is.
std::vector<std::string> candidates(const Environment& environment, const SlurmOfStep& slurm) {
  std::vector<std::string> paths;
  if (!slurm.folder.empty()) paths.push_back(cat({slurm.folder, "/", kPmiLibrary}));
  for (const auto folder : split(environment.get("PATH").value_or(""), ':')) {
    if (!may_access(cat({folder, "/srun"}), X_OK)) continue;
    for (const std::string_view library : {"/../lib64/", "/../lib/"})
      paths.push_back(cat({folder, library, kPmiLibrary}));
  }
  paths.emplace_back(kPmiLibrary);
  return paths;
}

Result<Pmi1Library> Pmi1Library::load(const Environment& environment) {
  // As in a container without the host's /etc/slurm: libslurm would wait for a minute, then end the process.
  const auto configuration = environment.get("SLURM_CONF");
  if (configuration && !may_access(std::string(*configuration), R_OK)) {
    return fail(ErrorCode::kMissing,
                cat({"PMI-1 needs Slurm's configuration, and this task cannot read SLURM_CONF=", *configuration}));
  }
  Pmi1Library pmi;
  void* library = nullptr;
  const auto slurm = read_slurm(environment.get(kSettingsVariable).value_or(""));
  std::string of_another;
  for (const auto& path : candidates(environment, slurm)) {
    pmi.path_ = path;
    auto why_not = pmi.look_at(slurm);
    if (of_another.empty()) of_another = why_not;
    // With RTLD_LOCAL the plugins of libslurm do not find its symbols, and the loader ends the process.
    if (why_not.empty()) library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) break;
  }
  if (library == nullptr && !of_another.empty()) return fail(ErrorCode::kMissing, std::move(of_another));
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return fail(ErrorCode::kMissing, cat({"cannot load Slurm's PMI-1 library: ",
                                          reason == nullptr ? kPmiLibrary : reason, "; install it (Debian: libpmi0)"}));
  }
  if (!find_symbol(library, "PMI_Init", pmi.init_) || !find_symbol(library, "PMI_Get_rank", pmi.get_rank_) ||
      !find_symbol(library, "PMI_Get_size", pmi.get_size_) ||
      !find_symbol(library, "PMI_KVS_Get_my_name", pmi.get_my_name_) ||
      !find_symbol(library, "PMI_KVS_Put", pmi.put_) || !find_symbol(library, "PMI_KVS_Commit", pmi.commit_) ||
      !find_symbol(library, "PMI_Barrier", pmi.barrier_) || !find_symbol(library, "PMI_KVS_Get", pmi.get_) ||
      !find_symbol(library, "PMI_Finalize", pmi.finalize_)) {
    return fail(ErrorCode::kMissing, cat({pmi.path_, " does not have all functions of PMI-1"}));
  }
  return pmi;
}

std::string key_of(std::string_view rank, std::size_t piece) {
  return cat({"bootstrap.", rank, ".", std::to_string(piece)});
}

std::optional<std::string> value_of(const Pmi1Library& pmi, std::string_view rank) {
  std::vector<std::string> pieces;
  auto first = pmi.get(key_of(rank, 0));
  const auto count = count_pmi_pieces(first.value_or(""));
  if (!count) return {};
  pieces.push_back(std::move(*first));
  while (pieces.size() < *count) {
    auto next = pmi.get(key_of(rank, pieces.size()));
    if (!next) return {};
    pieces.push_back(std::move(*next));
  }
  return from_pmi_pieces(pieces);
}

// Takes standard error over: what libslurm prints there is the reason of a failure, and goes into our message only.
class ErrorOutput {
 public:
  ErrorOutput() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    (void)::dup2(ends[1], STDERR_FILENO);
    (void)::close(ends[1]);
    read_ = ends[0];
  }

  // ": slurmstepd: error: ...", or nothing.
  std::string last_line() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; read_ >= 0 && (size = ::read(read_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(size));
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const auto line = std::string_view(text).substr(text.rfind('\n') + 1);
    return line.empty() ? std::string() : cat({": ", printable(line)});
  }

 private:
  int read_ = -1;
};

// For an answer also if libslurm ends the process by exit(3), as it does without a slurm.conf.
struct Helper {
  ErrorOutput errors;
  std::string_view state = kPmi1NotBegun;
  bool has_answered = false;

  void fail_with(std::string_view reason) {
    has_answered = true;
    helper_socket::send({std::string(state), cat({reason, errors.last_line()})});
  }
};

Helper& helper() {
  static auto* const one = new Helper;  // lives until after exit(3)
  return *one;
}

void answer_at_exit() {
  if (!helper().has_answered) helper().fail_with("Slurm's PMI-1 library ended the process");
}

Status do_exchange(Pmi1Library& pmi, const std::string& value, const Environment& environment) {
  const auto rank = environment.number("PMI_RANK").value_or(0);
  if (auto status = pmi.init(rank, environment.number("PMI_SIZE").value_or(0)); !status) return status;
  const auto pieces = to_pmi_pieces(value);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (auto status = pmi.put(key_of(std::to_string(rank), i), pieces[i]); !status) return status;
  }
  if (auto status = pmi.commit(); !status) return status;
  helper().state = kPmi1BarrierFailed;
  return pmi.barrier();
}

void serve_pmi1(const std::vector<std::string>& request, const Environment& environment) {
  (void)std::atexit(answer_at_exit);
  auto& self = helper();
  helper_socket::end_with_peer();
  auto pmi = Pmi1Library::load(environment);
  const auto done = pmi ? do_exchange(*pmi, request.front(), environment) : Status(fail(pmi.error()));
  if (!done) return self.fail_with(done.error().message);
  std::vector<std::string> answer{std::string(kPmi1Done)};
  for (std::size_t i = 1; i < request.size(); ++i) answer.push_back(value_of(*pmi, request[i]).value_or(""));
  pmi->finalize();
  self.has_answered = true;
  helper_socket::send(answer);
}

}  // namespace

void serve_as_helper() noexcept {
  try {
    const auto request = helper_socket::receive();
    if (request && !request->empty()) serve_pmi1(*request, process_environment());
  } catch (const std::exception&) {
    // Out of memory: the rank reports that it got no answer.
  }
  ::_exit(0);
}

}  // namespace bootstrap
