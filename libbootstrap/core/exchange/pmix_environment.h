// Checks that the PMIx variables in an environment are those of this rank, before a call to the server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Slurm before 23.02 (auth_setuid_lock, bug 15193): slurmstepd is its user while it starts the tasks, and its PMIx
// thread then refuses the credential of the next server, to which it passes on the data of a fence. The message is
// lost, and the fence never ends. Steps of 8 ranks on 4 nodes that lost one, three at once:
//
// Slurm     bare PMIx         this library      measured
// 22.05.8   41 of 1,000       0 of 1,000        2026-11-25, load 6 to 13
// 24.11.5   0 of 1,000        0 of 1,000        2026-11-25, load 13 to 23
struct PmixServer {
  std::string name_space;  // "slurm.pmix.12.0", or "795672577" of mpirun
  std::uint16_t port = 0;  // TCP port of the server on this node; 0 when the address has none
  bool from_mpirun = false;
  bool loses_early_messages = false;  // true if in doubt
};

// All that a rank starts inherits PMIX_*, so they may be of an outer step or of another launcher. kMissing: this step
// has no PMIx, or the variables are another step's. kDisagreement: they are not this rank's.
Result<PmixServer> check_pmix_environment(const Environment& environment, const StepId& id, Rank rank);

// "pmix-server.17549;tcp4://127.0.0.1:46173" is 46173.
std::optional<std::uint16_t> port_of_server(std::string_view address);

}  // namespace bootstrap
