// One exchange over PMI-1, done by a helper process.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmi/pmi1_helper.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "comm/pmi/pmi1_library.h"
#include "comm/process/secure_wipe.h"
#include "core/exchange/exchanged_values.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// The first string of an answer.
constexpr std::string_view kDone = "done";
constexpr std::string_view kNotBegun = "not begun";    // the barrier; then why not
constexpr std::string_view kBarrierFailed = "failed";  // in the barrier; then why

// In the answer, in front of a value: a rank may have put none.
constexpr std::string_view kThere = "+";

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

// What libslurm writes to standard error is the reason of a failure, and the program's user shall read it in our
// sentence alone.
class ErrorOutput {
 public:
  ErrorOutput() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    (void)::dup2(ends[1], STDERR_FILENO);
    (void)::close(ends[1]);
    read_ = ends[0];
  }

  // "; slurmstepd: error: ...", or nothing.
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

// What there is to say when libslurm ends the process by exit(3), as it does without a slurm.conf.
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
  static auto* const one = new Helper;  // for the time of exit(3), too
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
    const bool is_there = answer[i].starts_with(kThere);
    outcome.values.push_back(is_there ? std::optional(answer[i].substr(kThere.size())) : std::nullopt);
    wipe(answer[i]);
  }
  return outcome;
}

// Slurm's libpmi takes all from the environment. Components of a heterogeneous step have a job id each, and one srun
// serves them all: the first one's id is for all.
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

}  // namespace

Result<Pmi1Outcome> exchange_in_helper(const StepId& id, const Pmi1Exchange& exchange, const Environment& environment,
                                       Deadline deadline) {
  auto request = write_request(exchange);
  auto answer = ask_helper(request, environment_of_helper(exchange, environment, id), deadline);
  for (auto& text : request) wipe(text);
  if (!answer) return fail(answer.error());
  return read_answer(*answer);
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
    answer.push_back(value ? cat({kThere, *value}) : "");
  }
  pmi->finalize();
  self.has_answered = true;
  helper_socket::send(answer);
}

}  // namespace bootstrap
