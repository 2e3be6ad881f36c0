// Chooses what carries the rounds of this step.
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange_engine.h"

#include "core/util/text.h"

namespace bootstrap {

Result<RankWords> ExchangeEngine::pass_word(const CallTag& /*tag*/, const std::optional<RankWord>& /*own*/,
                                            const std::vector<Rank>& /*asked*/) {
  return fail(ErrorCode::kUnsupported, cat({name(), " does not report which rank failed, srun --mpi=pmix does"}));
}

Result<std::unique_ptr<ExchangeEngine>> choose_engine(const StepRank& self) {
  auto pmix = make_pmix_engine(self);
  if (pmix || pmix.error().code != ErrorCode::kMissing || self.id.launcher == Launcher::kMpirun) return pmix;
  auto pmi1 = make_pmi1_engine(self);
  if (pmi1) return pmi1;
  return fail(ErrorCode::kMissing,
              cat({pmix.error().message, "; PMI-1 is not available either: ", pmi1.error().message}));
}

}  // namespace bootstrap
