// The name of a step, how messages begin, and the step ids that are not steps of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/util/text.h"

namespace bootstrap {

// SLURM_MAX_NORMAL_STEP_ID of slurm.h: from here on they are batch, extern and interactive steps. Fixed in Slurm's
// protocol, and written here so that the core needs no Slurm header; the plugin asserts that it is equal.
inline constexpr std::uint32_t kMaxNormalStepId = 0xfffffff0U;

// srun --no-allocate numbers its jobs from here on, and slurmctld has no record of them (MIN_NOALLOC_JOBID in its
// sources).
inline constexpr std::uint32_t kMinUnknownJobId = 0xffff0000U;
inline bool is_known_job(std::uint32_t job) { return job < kMinUnknownJobId; }

// What srun --async starts has no number yet (SLURM_PENDING_STEP).
inline constexpr std::uint32_t kPendingStep = 0xfffffffdU;

inline bool is_normal_step(std::uint32_t step) { return step < kMaxNormalStepId; }

// The program that started and numbered the ranks.
enum class Launcher : std::uint8_t { kSlurm, kMpirun, kLast = kMpirun };

// In front of the ids of mpirun, which counts by itself: its 12.0 is not Slurm's.
inline constexpr std::string_view kMpirunPrefix = "mpirun-";

struct StepId {
  std::uint32_t job = 0;  // of a heterogeneous job: that of its first component, the same for all
  std::uint32_t step = 0;
  std::uint32_t restart = 0;  // SLURM_RESTART_COUNT: how often the job was requeued
  Launcher launcher = Launcher::kSlurm;

  bool operator==(const StepId&) const = default;
};

// "12.0", what users type, "12.TBD", as Slurm writes it too, or "mpirun-12141.1", which Open MPI writes as [12141,1].
inline std::string to_string(const StepId& id) {
  return cat({id.launcher == Launcher::kMpirun ? kMpirunPrefix : "", std::to_string(id.job), ".",
              id.step == kPendingStep ? "TBD" : std::to_string(id.step)});
}

// "12.0.0", SLURM_BOOTSTRAP_STEP.
inline std::string step_tag(const StepId& id) { return cat({to_string(id), ".", std::to_string(id.restart)}); }

// After a warning the step goes on. If it ends, Slurm writes "error: " before our message.
inline constexpr std::string_view kMessagePrefix = "bootstrap: ";
inline constexpr std::string_view kWarningPrefix = "bootstrap: warning: ";

// "StepId=12.0", as Slurm itself names a step in its messages; what mpirun started is no step of that name.
inline std::string step_name(std::string_view id) {
  return id.starts_with(kMpirunPrefix) ? std::string(id) : cat({"StepId=", id});
}
inline std::string step_name(const StepId& id) { return step_name(to_string(id)); }

// "StepId=12.0: ", or "StepId=12.0 rank 3: ": the next part of every message about a step, or one of its ranks.
inline std::string about_step(std::string_view id) { return cat({step_name(id), ": "}); }
inline std::string about_step(const StepId& id) { return about_step(to_string(id)); }
inline std::string about_rank(const StepId& id, std::uint32_t rank) {
  return cat({step_name(id), " rank ", std::to_string(rank), ": "});
}

inline std::string step_prefix(const StepId& id) { return cat({kMessagePrefix, about_step(id)}); }

}  // namespace bootstrap
