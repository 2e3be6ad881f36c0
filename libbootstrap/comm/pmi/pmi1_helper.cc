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
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr const char* kPmiLibrary = "libpmi.so.0";

// The first string of an answer.
constexpr std::string_view kDone = "done";
constexpr std::string_view kNotBegun = "not begun";    // the barrier; the reason follows
constexpr std::string_view kBarrierFailed = "failed";  // in the barrier; the reason follows

// Precedes a value in the answer: a rank may have put none.
constexpr std::string_view kValue = "+";

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

  Status call(const char* name, int code) const {
    if (code == kSuccess) return {};
    return fail(ErrorCode::kUnavailable, cat({name, " of ", path_, " failed (", std::to_string(code), ")"}));
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
  std::string space_;  // of keys and values: "12.0", the step
};

// A Slurm with its own prefix is seldom in the loader's path, but PREFIX/bin is in PATH, as srun is.
std::vector<std::string> candidates(const Environment& environment) {
  std::vector<std::string> paths;
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
  for (const auto& path : candidates(environment)) {
    // With RTLD_LOCAL the plugins of libslurm do not find its symbols, and the loader ends the process.
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    pmi.path_ = path;
    if (library != nullptr) break;
  }
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
struct Helper {
  ErrorOutput errors;
  std::string_view state = kNotBegun;
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

Status do_exchange(Pmi1Library& pmi, const Pmi1Exchange& exchange) {
  if (auto status = pmi.init(exchange.rank, exchange.size); !status) return status;
  const auto pieces = to_pmi_pieces(exchange.value);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (auto status = pmi.put(key_of(exchange.rank, i), pieces[i]); !status) return status;
  }
  if (auto status = pmi.commit(); !status) return status;
  helper().state = kBarrierFailed;
  return pmi.barrier();
}

std::vector<std::string> write_request(const Pmi1Exchange& exchange) {
  std::vector<std::string> request{std::to_string(exchange.rank), std::to_string(exchange.size), exchange.value};
  for (const Rank rank : exchange.wanted) request.push_back(std::to_string(rank));
  return request;
}

std::optional<Pmi1Exchange> read_request(const std::vector<std::string>& request) {
  constexpr std::size_t kFirstWanted = 3;
  if (request.size() < kFirstWanted) return {};
  const auto number = [](const std::string& text) {
    return static_cast<std::uint32_t>(parse_unsigned(text, kMaxRanks).value_or(0));
  };
  Pmi1Exchange exchange{number(request[0]), number(request[1]), request[2], {}};
  for (std::size_t i = kFirstWanted; i < request.size(); ++i) exchange.wanted.push_back(number(request[i]));
  return exchange;
}

Pmi1Outcome read_answer(std::vector<std::string>& answer) {
  Pmi1Outcome outcome;
  const std::string_view state = answer.empty() ? std::string_view() : answer.front();
  if (state != kDone) {
    outcome.may_have_arrived = state != kNotBegun;
    outcome.trouble = answer.size() == 2 ? answer[1] : "the helper process returned no answer";
    return outcome;
  }
  for (std::size_t i = 1; i < answer.size(); ++i) {
    const bool has_value = answer[i].starts_with(kValue);
    outcome.values.push_back(has_value ? std::optional(answer[i].substr(kValue.size())) : std::nullopt);
    wipe(answer[i]);
  }
  return outcome;
}

// Slurm's libpmi reads all from the environment. Components of a heterogeneous step have their own job ids, but one
// srun serves them all: the first component's id counts.
Environment environment_of_helper(const Pmi1Exchange& exchange, const Environment& environment, const StepId& id) {
  auto changed = environment;
  const auto set = [&](std::initializer_list<std::string_view> names, std::uint32_t value) {
    for (const auto name : names) changed.set(name, std::to_string(value));
  };
  set({"SLURM_JOB_ID", "SLURM_JOBID", "PMI_JOBID"}, id.job);
  set({"SLURM_STEP_ID", "SLURM_STEPID", "PMI_STEPID"}, id.step);
  set({"SLURM_PROCID", "PMI_RANK"}, exchange.rank);
  set({"SLURM_NPROCS", "SLURM_NTASKS", "PMI_SIZE"}, exchange.size);
  for (const std::string_view name : {"PMI_FD", "PMI_DEBUG", "PMI_SPAWNED"}) changed.unset(name);
  return changed;
}

void serve_pmi1(const std::vector<std::string>& request, const Environment& environment) {
  const auto exchange = read_request(request);
  if (!exchange) return;
  (void)std::atexit(answer_at_exit);
  auto& self = helper();
  helper_socket::end_with_peer();
  auto pmi = Pmi1Library::load(environment);
  auto done = pmi ? do_exchange(*pmi, *exchange) : Status(fail(pmi.error()));
  if (!done) return self.fail_with(done.error().message);
  std::vector<std::string> answer{std::string(kDone)};
  for (const Rank rank : exchange->wanted) {
    const auto value = value_of(*pmi, rank);
    answer.push_back(value ? cat({kValue, *value}) : "");
  }
  pmi->finalize();
  self.has_answered = true;
  helper_socket::send(answer);
}

}  // namespace

Result<Pmi1Outcome> exchange_in_helper(const StepId& id, const Pmi1Exchange& exchange, const Environment& environment,
                                       Deadline deadline) {
  auto request = write_request(exchange);
  auto answer = ask_helper(request, environment_of_helper(exchange, environment, id), deadline);
  for (auto& text : request) wipe(text);
  if (!answer) return fail(answer.error());
  return read_answer(*answer);
}

void serve_as_helper() noexcept {
  try {
    const auto request = helper_socket::receive();
    if (request) serve_pmi1(*request, process_environment());
  } catch (const std::exception&) {
    // Out of memory: the rank reports that it got no answer.
  }
  ::_exit(0);
}

}  // namespace bootstrap
