// The interface between the exchange and what carries its rounds in this step: PMIx or PMI-1.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/exchange.h"
#include "core/exchange/exchanged_values.h"
#include "core/exchange/pmix_environment.h"

namespace bootstrap {

class ExchangeEngine {
 public:
  ExchangeEngine() = default;
  ExchangeEngine(const ExchangeEngine&) = delete;
  ExchangeEngine& operator=(const ExchangeEngine&) = delete;
  virtual ~ExchangeEngine() = default;

  // "PMIx 4.2.2" or "PMI-1", for people.
  virtual std::string name() const = 0;

  // One round of a step of several ranks; rounds never overlap. Returns within the deadline and two seconds. Values
  // with another tag do not count.
  virtual Result<RankValues> run(const CallTag& tag, const Allgather& round) = 0;

  // Exchange::share_reports() after the round with this tag.
  virtual Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                            const std::vector<Rank>& asked) = 0;

  // Called in a helper when its rank has ended without leave().
  virtual void tell_end_of_rank() {}

  // The last call: leaves the server, with `do_all_leave` together with this node's ranks. Returns by the deadline.
  virtual void leave(bool /*do_all_leave*/, Deadline /*deadline*/) {}
};

using Engine = Result<std::unique_ptr<ExchangeEngine>>;

// Both connect in this process. `may_follow_another`: other code of the rank may have closed a session a moment ago.
Engine connect_to_pmix(const StepRank& self, bool may_follow_another);
Engine connect_to_pmi1(const StepRank& self);

// Uses the PMIx session that this process already has. With mpirun's server it opens a session if there is none.
std::unique_ptr<ExchangeEngine> ride_on_own_pmix(const StepRank& self, const PmixServer& server);
bool has_own_pmix();  // true if this process has a PMIx session open

// About a server that does not answer this rank.
std::string describe_silence(const StepRank& self, bool from_mpirun);

// Starts a helper process that connects to PMIx or PMI-1.
enum class Carrier : std::uint8_t { kPmix, kPmi1 };
Engine start_helper(const StepRank& self, Carrier carrier, bool may_follow_another, Deadline deadline);

}  // namespace bootstrap
