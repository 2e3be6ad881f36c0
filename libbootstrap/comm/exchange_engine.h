// The interface between the exchange and what carries its rounds in this step: PMIx or PMI-1.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/exchange.h"
#include "core/exchange/exchanged_values.h"

namespace bootstrap {

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

  // "PMIx 4.2.2" or "PMI-1", for people.
  virtual std::string name() const = 0;

  // One round of a step of several ranks; rounds never overlap. Returns within the deadline and two seconds. Values
  // with another tag do not count.
  virtual Result<RankValues> run(const CallTag& tag, const Allgather& round) = 0;

  // Exchange::share_reports() after the round with this tag.
  virtual Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                            const std::vector<Rank>& asked) = 0;
};

// They fail if the step lacks what the engine needs, and open nothing.
Result<std::unique_ptr<ExchangeEngine>> make_pmix_engine(const StepRank& self);
Result<std::unique_ptr<ExchangeEngine>> make_pmi1_engine(const StepRank& self);

}  // namespace bootstrap
