// Slurm's API for srun, and how its releases take the ids of jobs and steps. The only header that includes slurm.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slurm/slurm.h>

#include <cstdint>

namespace bootstrap {

// Slurm 24.11 has one member more than 22.05; what is not named stays 0.
inline slurm_step_id_t step_id(std::uint32_t job, std::uint32_t component, std::uint32_t step) {
  slurm_step_id_t id{};
  id.job_id = job;
  id.step_het_comp = component;
  id.step_id = step;
  return id;
}

// A job as slurm_load_job takes it: by its number, and by the id of a step since Slurm 26.05.
struct WholeJob {
  std::uint32_t job;
  operator std::uint32_t() const { return job; }
  operator slurm_step_id_t() const { return step_id(job, NO_VAL, NO_VAL); }
};

}  // namespace bootstrap
