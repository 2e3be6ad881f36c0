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

constexpr int kPmiSuccess = 0;  // PMI_SUCCESS

struct Pmi1Library {
  Symbols find;
  std::string path;
  std::string release;  // "Slurm 22.05"
  int (*init)(int*) = find("PMI_Init");
  int (*get_rank)(int*) = find("PMI_Get_rank");
  int (*get_size)(int*) = find("PMI_Get_size");
  int (*get_my_name)(char*, int) = find("PMI_KVS_Get_my_name");
  int (*put)(const char*, const char*, const char*) = find("PMI_KVS_Put");
  int (*commit)(const char*) = find("PMI_KVS_Commit");  // sends the values to srun
  int (*barrier)() = find("PMI_Barrier");               // of all ranks: waits forever for a missing one
  int (*get)(const char*, const char*, char*, int) = find("PMI_KVS_Get");
  int (*finalize)() = find("PMI_Finalize");

  Status check(const char* call, int code) const {
    if (code == kPmiSuccess) return {};
    const auto of = release.empty() ? std::string() : cat({" (", release, ")"});
    return fail(ErrorCode::kUnavailable, cat({call, " of ", path, of, " failed (", std::to_string(code), ")"}));
  }
};

// Returns why the step cannot use the library, and closes it then: two libslurm in a process would share symbols.
std::string look_at(const SlurmOfStep& slurm, std::string& path, std::string& release) {
  void* const tried = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (tried == nullptr) return {};
  const Symbols find{tried};
  long (*const api_version)() = find.if_there("slurm_api_version");
  if (api_version == nullptr) return {};
  Dl_info info{};
  if (::dladdr(find.if_there("PMI_Init").address, &info) != 0) path = info.dli_fname;
  release = slurm_of_api(api_version());
  auto why_not = why_not_libpmi(slurm, api_version(), path);
  if (!why_not.empty()) (void)::dlclose(tried);
  return why_not;
}

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

// libpmi.so.0 of the Slurm whose srun is in PATH, else the one that the loader finds. It stays loaded.
Result<Pmi1Library> load_pmi1(const Environment& environment) {
  // In a container without the host's /etc/slurm, libslurm would wait for a minute, then end the process.
  const auto configuration = environment.get("SLURM_CONF");
  if (configuration && !may_access(std::string(*configuration), R_OK)) {
    return fail(ErrorCode::kMissing,
                cat({"PMI-1 needs Slurm's configuration, and this task cannot read SLURM_CONF=", *configuration}));
  }
  const auto slurm = read_slurm(environment.get(kSettingsVariable).value_or(""));
  std::string of_another;
  for (auto& path : candidates(environment, slurm)) {
    std::string release;
    auto why_not = look_at(slurm, path, release);
    if (of_another.empty()) of_another = why_not;
    // With RTLD_LOCAL the plugins of libslurm do not find its symbols, and the loader ends the process.
    void* const library = why_not.empty() ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) : nullptr;
    if (library == nullptr) continue;
    Pmi1Library pmi{{library}, path, release};
    if (pmi.find.is_whole) return pmi;
    return fail(ErrorCode::kMissing, cat({path, " does not have all functions of PMI-1"}));
  }
  const char* reason = ::dlerror();
  if (!of_another.empty()) return fail(ErrorCode::kMissing, std::move(of_another));
  return fail(ErrorCode::kMissing, cat({"cannot load Slurm's PMI-1 library: ", reason == nullptr ? kPmiLibrary : reason,
                                        "; install it (Debian: libpmi0)"}));
}

std::string key_of(Rank rank, std::size_t piece) {
  return cat({"bootstrap.", std::to_string(rank), ".", std::to_string(piece)});
}

// Lets the helper answer even if libslurm ends the process by exit(3), as it does without a slurm.conf. Redirects
// standard error: what libslurm prints there is the reason of a failure, and appears in our message only.
struct Pmi1Process {
  bool is_counted = false;  // srun may count this rank at the barrier
  bool is_in_call = true;
  Descriptor output;

  Pmi1Process() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    output = Descriptor(ends[0]);
    (void)::dup2(Descriptor(ends[1]).get(), STDERR_FILENO);
  }

  // kMissing before the rank has joined the barrier: it may try again.
  Error error(std::string_view reason) const {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(output.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(size));
    }
    while (text.ends_with('\n')) text.pop_back();
    const auto last_line = printable(std::string_view(text).substr(text.rfind('\n') + 1));
    return {is_counted ? ErrorCode::kUnavailable : ErrorCode::kMissing,
            cat({reason, last_line.empty() ? "" : ": ", last_line, "; ", kRemedy})};
  }
};

Pmi1Process& pmi1_process() {
  static auto* const one = new Pmi1Process;  // lives until after exit(3)
  return *one;
}

// Slurm's libpmi reads everything from the environment. Components of a heterogeneous step have their own job ids, but
// one srun serves them all, under the first component's id.
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
    (void)pmi_.finalize();
    return values;
  }

  Result<RankReports> share_reports(const CallTag& /*tag*/, const std::optional<RankReport>& /*own*/,
                                    const std::vector<Rank>& /*asked*/) override {
    return fail(ErrorCode::kUnsupported, cat({name(), " does not report which rank failed, srun --mpi=pmix does"}));
  }

 private:
  // Fails if the library is not Slurm's: others do not take rank and size from Slurm's variables.
  Status init() {
    int is_spawned = 0;
    int rank = -1;
    int size = -1;
    std::array<char, 256> name{};  // PMI_MAX_KVSNAME_LEN
    auto status = pmi_.check("PMI_Init", pmi_.init(&is_spawned));
    if (status) status = pmi_.check("PMI_Get_rank", pmi_.get_rank(&rank));
    if (status) status = pmi_.check("PMI_Get_size", pmi_.get_size(&size));
    if (status)
      status = pmi_.check("PMI_KVS_Get_my_name", pmi_.get_my_name(name.data(), static_cast<int>(name.size())));
    space_ = name.data();
    if (!status || (rank == static_cast<int>(self_.rank) && size == static_cast<int>(self_.layout.size())))
      return status;
    return fail(ErrorCode::kMissing,
                cat({pmi_.path, " is not Slurm's PMI-1 library: for this process it returned rank ",
                     std::to_string(rank), " of ", std::to_string(size)}));
  }

  // Between PMI_Init and PMI_Finalize libpmi does not send another value under a name that it has sent.
  Status send_and_wait(std::string value) {
    const auto pieces = to_pmi_pieces(value);
    wipe(value);
    auto status = init();
    for (std::size_t i = 0; i < pieces.size() && status; ++i) {
      status = pmi_.check("PMI_KVS_Put", pmi_.put(space_.c_str(), key_of(self_.rank, i).c_str(), pieces[i].c_str()));
    }
    if (status) status = pmi_.check("PMI_KVS_Commit", pmi_.commit(space_.c_str()));
    if (!status) return status;
    pmi1_process().is_counted = true;
    return pmi_.check("PMI_Barrier", pmi_.barrier());
  }

  // The value that a rank sent with the barrier; empty: there is none.
  std::string value_of(Rank rank) const {
    std::vector<std::string> pieces;
    do {
      std::array<char, kMaxPmiValue> piece{};
      const auto key = key_of(rank, pieces.size());
      if (pmi_.get(space_.c_str(), key.c_str(), piece.data(), static_cast<int>(piece.size())) != kPmiSuccess) return {};
      pieces.emplace_back(piece.data());
    } while (pieces.size() < count_pmi_pieces(pieces.front()).value_or(0));
    return from_pmi_pieces(pieces).value_or("");
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

  // An older value means that the rank, or its MPI library, joined this barrier with another PMI-1 call.
  Result<std::string> read(const CallTag& tag, Rank rank) const {
    auto text = value_of(rank);
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
  std::string space_;  // of keys and values: "12.0", the step
};

}  // namespace

Engine connect_to_pmi1(const StepRank& self) {
  (void)std::atexit([] {
    if (pmi1_process().is_in_call) answer_with(pmi1_process().error("Slurm's PMI-1 library ended the process"));
  });
  set_environment(self);
  auto pmi = load_pmi1(self.environment);
  if (!pmi) return fail(pmi1_process().error(pmi.error().message));
  pmi1_process().is_in_call = false;
  return Engine(std::make_unique<Pmi1Engine>(self, std::move(*pmi)));
}

}  // namespace bootstrap
