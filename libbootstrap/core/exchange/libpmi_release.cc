// Which libpmi a step needs: that of srun's own Slurm, or of the releases just before. srun answers no other.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/libpmi_release.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// In the form of a setting that no version knows, so every version skips it.
constexpr std::string_view kItem = "site:slurm=";

// libslurm.so.38 is 22.05's, and each release has the next number, as each has a protocol of its own.
constexpr std::size_t kFirstNumber = 38;
constexpr std::array<std::string_view, 8> kReleases{"22.05", "23.02", "23.11", "24.05",
                                                    "24.11", "25.05", "25.11", "26.05"};
constexpr std::size_t kSpeaksToThree = 4;  // from 24.11 on Slurm speaks to three releases before it, older ones to two

std::size_t place_of(long api_version) { return (static_cast<std::size_t>(api_version) >> 16) - kFirstNumber; }

}  // namespace

std::string write_slurm(const SlurmOfStep& slurm) { return cat({kItem, slurm.version, ":", slurm.folder}); }

SlurmOfStep read_slurm(std::string_view settings) {
  for (auto item : split(settings, ' ')) {
    if (!item.starts_with(kItem)) continue;
    item.remove_prefix(kItem.size());
    const auto colon = std::min(item.find(':'), item.size());
    return {.version = std::string(item.substr(0, colon)),
            .folder = std::string(item.substr(std::min(colon + 1, item.size())))};
  }
  return {};
}

std::string slurm_of_api(long api_version) {
  const auto place = place_of(api_version);
  return place < kReleases.size() ? cat({"Slurm ", kReleases[place]}) : std::string();
}

std::string why_not_libpmi(const SlurmOfStep& slurm, long api_version, std::string_view path) {
  const auto* const release =
      std::find(kReleases.begin(), kReleases.end(), std::string_view(slurm.version).substr(0, 5));
  const auto place = place_of(api_version);
  if (release == kReleases.end() || place >= kReleases.size()) return {};
  const auto step = static_cast<std::size_t>(release - kReleases.begin());
  const std::size_t reach = step >= kSpeaksToThree ? 3 : 2;
  if (place <= step && step - place <= reach) return {};
  constexpr std::string_view kCure =
      "'s, whose srun does not answer it; install that Slurm's libpmi on the nodes, or in the image (Debian: libpmi0; "
      "contribs/pmi of Slurm's sources)";
  return cat({path, " is Slurm ", kReleases[place], "'s, and the step is Slurm ", slurm.version, kCure});
}

}  // namespace bootstrap
