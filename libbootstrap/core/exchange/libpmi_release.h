// Which libpmi a step needs: that of srun's own Slurm, or of the releases just before. srun answers no other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace bootstrap {

// The Slurm of a step. slurmstepd passes it to the tasks as an item of SLURM_BOOTSTRAP_SETTINGS.
struct SlurmOfStep {
  std::string version;  // "26.05.5"; empty: not known
  std::string folder;   // of its libpmi, if it is installed; empty: not known
};
std::string write_slurm(const SlurmOfStep& slurm);
SlurmOfStep read_slurm(std::string_view settings);

// Returns "Slurm 22.05" for what slurm_api_version() of a libslurm returns. Empty: not known.
std::string slurm_of_api(long api_version);

// Why srun of this Slurm does not answer a libpmi; empty: it does, or that is not known.
std::string why_not_libpmi(const SlurmOfStep& slurm, long api_version, std::string_view path);

}  // namespace bootstrap
