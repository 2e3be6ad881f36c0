// Rounds over PMI-1, which srun serves to every step, whatever its --mpi option. Only in a helper process: libslurm may
// end its process, waits without a limit, and works only if all its symbols are global.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/helper/helper.h"
#include "core/exchange/libpmi_release.h"
#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/own_process.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr std::string_view kRemedy = "start the program with srun --mpi=pmix";
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

std::string key_of(Rank rank, std::size_t piece) {
  return cat({"bootstrap.", std::to_string(rank), ".", std::to_string(piece)});
}

std::optional<std::string> value_of(const Pmi1Library& pmi, Rank rank) {
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
struct Pmi1Process {
  ErrorOutput errors;
  bool is_counted = false;  // srun may count this rank at the barrier
  bool is_in_call = true;

  // A rank that has not joined the barrier may try again.
  Error error(std::string_view reason) const {
    return {is_counted ? ErrorCode::kUnavailable : ErrorCode::kMissing,
            cat({reason, errors.last_line(), "; ", kRemedy})};
  }
};

Pmi1Process& pmi1_process() {
  static auto* const one = new Pmi1Process;  // lives until after exit(3)
  return *one;
}

// Slurm's libpmi reads all from the environment. Components of a heterogeneous step have their own job ids, but one
// srun serves them all: the first component's id counts.
void set_environment(const StepRank& self) {
  const auto set = [&](std::initializer_list<const char*> names, std::size_t value) {
    for (const auto* const name : names) (void)::setenv(name, std::to_string(value).c_str(), 1);
  };
  set({"SLURM_JOB_ID", "SLURM_JOBID", "PMI_JOBID"}, self.id.job);
  set({"SLURM_STEP_ID", "SLURM_STEPID", "PMI_STEPID"}, self.id.step);
  set({"SLURM_PROCID", "PMI_RANK"}, self.rank);
  set({"SLURM_NPROCS", "SLURM_NTASKS", "PMI_SIZE"}, self.layout.size());
  for (const auto* const name : {"PMI_FD", "PMI_DEBUG", "PMI_SPAWNED"}) (void)::unsetenv(name);
}

class Pmi1Engine final : public ExchangeEngine {
 public:
  Pmi1Engine(StepRank self, Pmi1Library pmi) : self_(std::move(self)), pmi_(std::move(pmi)) {}

  std::string name() const override { return "PMI-1"; }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    pmi1_process().is_in_call = true;
    pmi1_process().is_counted = false;
    const auto done = send_and_wait(encode_tagged_value(tag, round.value));
    pmi1_process().is_in_call = false;
    if (!done) return fail(pmi1_process().error(done.error().message));
    auto values = read_all(tag, round.read);
    pmi_.finalize();
    return values;
  }

  Result<RankReports> share_reports(const CallTag& /*tag*/, const std::optional<RankReport>& /*own*/,
                                    const std::vector<Rank>& /*asked*/) override {
    return fail(ErrorCode::kUnsupported, cat({name(), " does not report which rank failed, srun --mpi=pmix does"}));
  }

 private:
  // Between PMI_Init and PMI_Finalize libpmi does not send another value under a name that it has sent.
  Status send_and_wait(std::string value) {
    const auto pieces = to_pmi_pieces(value);
    wipe(value);
    if (auto status = pmi_.init(self_.rank, static_cast<std::uint32_t>(self_.layout.size())); !status) return status;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (auto status = pmi_.put(key_of(self_.rank, i), pieces[i]); !status) return status;
    }
    if (auto status = pmi_.commit(); !status) return status;
    pmi1_process().is_counted = true;
    return pmi_.barrier();
  }

  Result<RankValues> read_all(const CallTag& tag, const std::vector<Rank>& ranks) const {
    RankValues values;
    for (const Rank rank : ranks) {
      auto value = read(tag, rank);
      if (!value) {
        for (auto& text : values) wipe(text);
        return fail(value.error());
      }
      values.push_back(std::move(*value));
    }
    return values;
  }

  // An older value is that of a rank that made a barrier of its own in this one.
  Result<std::string> read(const CallTag& tag, Rank rank) const {
    auto text = value_of(pmi_, rank).value_or("");
    const auto value = decode_tagged_value(text);
    if (!value || value->tag.sequence < tag.sequence) {
      return fail(ErrorCode::kDisagreement, cat({describe_rank(self_.layout, rank),
                                                 " provided no value: it, or its MPI library, made another PMI-1 "
                                                 "call; all ranks must make the same calls in the same order"}));
    }
    if (value->tag != tag) return fail(disagreement(self_.layout, rank, value->tag, tag));
    std::string bytes(value->bytes);
    wipe(text);
    return bytes;
  }

  StepRank self_;
  Pmi1Library pmi_;
};

}  // namespace

Engine connect_to_pmi1(const StepRank& self) {
  (void)std::atexit([] {
    if (pmi1_process().is_in_call) answer_with(pmi1_process().error("Slurm's PMI-1 library ended the process"));
  });
  set_environment(self);
  auto pmi = Pmi1Library::load(self.environment);
  if (!pmi) return fail(pmi1_process().error(pmi.error().message));
  pmi1_process().is_in_call = false;
  return Engine(std::make_unique<Pmi1Engine>(self, std::move(*pmi)));
}

}  // namespace bootstrap
