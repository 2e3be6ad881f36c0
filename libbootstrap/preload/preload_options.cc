// What users can say about the preloaded library alone: SLURM_BOOTSTRAP_* variables of the rank.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload_options.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMaxTimeout = 86400;

bool read_timeout(PreloadOptions& options, std::string_view value) {
  const auto seconds = parse_unsigned(value, kMaxTimeout);
  if (!seconds || *seconds == 0) return false;
  options.timeout = std::chrono::seconds(*seconds);
  return true;
}

bool read_guard(PreloadOptions& options, std::string_view value) {
  if (value == "fix") options.guard = Guard::kFix;
  if (value == "off") options.guard = Guard::kOff;
  return value == "warn" || value == "fix" || value == "off";
}

bool read_timing(PreloadOptions& options, std::string_view value) {
  options.timing = value == "1";
  return value == "0" || value == "1";
}

bool read_mpirun(PreloadOptions& options, std::string_view value) {
  const bool is_right = value == "ask" || value == "off";
  if (is_right) options.asks_mpirun = value == "ask";
  return is_right;
}

struct Row {
  std::string_view name;
  bool (*read)(PreloadOptions& options, std::string_view value);
  std::string_view takes;
};

constexpr Row kRows[] = {
    {"SLURM_BOOTSTRAP_TIMEOUT", read_timeout, "whole seconds, 1 to 86400"},
    {"SLURM_BOOTSTRAP_GUARD", read_guard, "warn, fix or off"},
    {"SLURM_BOOTSTRAP_TIMING", read_timing, "0 or 1"},
    {"SLURM_BOOTSTRAP_MPIRUN", read_mpirun, "ask or off"},
};

}  // namespace

PreloadOptions read_preload_options(const Environment& environment) {
  PreloadOptions options;
  for (const auto& row : kRows) {
    const auto value = environment.get(row.name);
    if (!value || row.read(options, *value)) continue;
    options.complaints.push_back(cat({row.name, "=", quoted(*value), " is ignored: use ", row.takes}));
  }
  return options;
}

}  // namespace bootstrap
