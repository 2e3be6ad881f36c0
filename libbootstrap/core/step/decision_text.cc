// What srun decided for a step, as one line of text.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/decision_text.h"

#include <algorithm>
#include <array>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kFormat = "3";
constexpr char kSeparator = ';';
constexpr std::size_t kFields = 7;
constexpr std::size_t kMaxReason = 512;                        // bytes
constexpr std::size_t kMaxWrittenReason = 4 * kMaxReason + 8;  // a byte that is not printable is written as \xNN
// By SetUp and Asked. "observe" stands for kNothing with is_observed.
constexpr std::array<std::string_view, 4> kSetUps{"nothing", "torchrun", "world", "all"};
constexpr std::array<std::string_view, 3> kAskeds{"unasked", "weakly", "strongly"};
constexpr std::string_view kObserve = "observe";
constexpr std::string_view kVerbose = "v";
constexpr std::string_view kSetUpPrefix = "set_up:";

template <std::size_t N>
std::optional<std::size_t> index_of(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::string verdict(const Decision& decision, std::string_view hint) {
  const auto* what = "SET UP: ";
  if (decision.set_up == SetUp::kNothing) what = "NOT SET UP: ";
  if (decision.set_up == SetUp::kTorchrun) what = "SET UP for torchrun: ";
  return cat({what, decision.reason, hint.empty() ? "" : "; ", hint});
}

std::string_view hint_of(const Decision& decision) {
  if (decision.set_up == SetUp::kNothing || decision.asked != Asked::kUnasked) return {};
  return "use --bootstrap=off to run it without the plugin";
}

std::string write_set_up(SetUp set_up) { return cat({kSetUpPrefix, kSetUps[static_cast<std::size_t>(set_up)]}); }

SetUp read_set_up(std::string_view settings) {
  if (!settings.starts_with(kSetUpPrefix)) return SetUp::kAllSettings;
  const auto word = settings.substr(0, settings.find(' ')).substr(kSetUpPrefix.size());
  return static_cast<SetUp>(index_of(kSetUps, word).value_or(static_cast<std::size_t>(SetUp::kAllSettings)));
}

// "3;12.0;world;unasked;SALT;localhost;v;4 tasks, each with ...": the reason may hold any separator, so it is the last.
std::string write_decision(const StepId& id, const Decision& decision) {
  const auto what = decision.is_observed ? kObserve : kSetUps[static_cast<std::size_t>(decision.set_up)];
  return cat({kFormat, ";", to_string(id), ";", what, ";", kAskeds[static_cast<std::size_t>(decision.asked)], ";",
              to_hex(decision.salt), ";", decision.unusable_master, ";", decision.is_verbose ? kVerbose : "", ";",
              printable(std::string_view(decision.reason).substr(0, kMaxReason))});
}

bool asks_strongly(std::string_view decision) {
  const auto fields = split(decision, kSeparator);
  return fields.size() >= kFields && fields[3] == kAskeds[static_cast<std::size_t>(Asked::kStrongly)];
}

std::optional<Decision> read_decision(std::string_view text, const StepId& id) {
  std::array<std::string_view, kFields> fields;
  for (auto& field : fields) {
    const auto end = text.find(kSeparator);
    if (end == std::string_view::npos) return std::nullopt;
    field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  if (fields[0] != kFormat || fields[1] != to_string(id)) return std::nullopt;
  Decision decision;
  decision.is_observed = fields[2] == kObserve;
  const auto what = decision.is_observed ? std::optional(std::size_t{0}) : index_of(kSetUps, fields[2]);
  const auto asked = index_of(kAskeds, fields[3]);
  const auto salt = parse_hex(fields[4]);
  if (!what || !asked || !salt) return std::nullopt;
  decision.set_up = static_cast<SetUp>(*what);
  decision.asked = static_cast<Asked>(*asked);
  // The text may come from a user, and goes into slurmd's log and to the user's terminal.
  if (!fields[5].empty() && !is_host_name(fields[5])) return std::nullopt;
  if (!is_printable_text(text, kMaxWrittenReason)) return std::nullopt;
  decision.salt = *salt;
  decision.unusable_master = fields[5];
  decision.is_verbose = fields[6] == kVerbose;
  decision.reason = text;
  return decision;
}

}  // namespace bootstrap
