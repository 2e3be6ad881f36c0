// What carries a round: the interface between the exchange and whatever Slurm offers in this step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/exchange.h"
#include "core/exchange/exchanged_values.h"

namespace bootstrap {

// This rank, as an engine needs it.
struct StepRank {
  StepId id;
  Layout layout;
  Rank rank = 0;
  Environment environment;
};

class ExchangeEngine {
 public:
  ExchangeEngine() = default;
  ExchangeEngine(const ExchangeEngine&) = delete;
  ExchangeEngine& operator=(const ExchangeEngine&) = delete;
  virtual ~ExchangeEngine() = default;

  // "PMIx 4.2.2", "PMI-1": for people.
  virtual std::string name() const = 0;

  // One round of a step of several ranks; rounds never overlap. Comes back within the deadline and two seconds. A value
  // counts only when its tag is `tag`.
  virtual Result<AllgatherResult> run(const CallTag& tag, const Allgather& round) = 0;

  // After the round of that tag, as Exchange::pass_word().
  virtual Result<RankWords> pass_word(const CallTag& tag, const std::optional<RankWord>& own,
                                      const std::vector<Rank>& asked);
};

// PMIx where the step has it, else PMI-1, so that all ranks choose alike. Nothing is opened.
Result<std::unique_ptr<ExchangeEngine>> choose_engine(const StepRank& self);

// Each is one file pair. They fail where the step does not have what they need.
Result<std::unique_ptr<ExchangeEngine>> make_pmix_engine(const StepRank& self);
Result<std::unique_ptr<ExchangeEngine>> make_pmi1_engine(const StepRank& self);

}  // namespace bootstrap
