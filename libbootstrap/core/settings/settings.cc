// How settings are applied, named in messages, and carried to the tasks.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::array<std::string_view, 4> kSources{"default", "site", "environment", "option"};

const SettingSpec* find_setting(std::string_view name) {
  const auto specs = setting_specs();
  const auto found = std::find_if(specs.begin(), specs.end(), [name](const auto& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

std::string name_at(const SettingSpec& spec, Source source) {
  if (source == Source::kDefault) source = spec.option.empty() ? Source::kSite : Source::kOption;
  if (source == Source::kOption) return cat({"--", spec.option});
  return source == Source::kEnvironment ? std::string(spec.variable) : cat({spec.name, "= in plugstack.conf"});
}

std::string text_at(const SettingSpec& spec, Source source, std::string_view value) {
  if (source == Source::kSite) return cat({spec.name, "=", value, " in plugstack.conf"});
  return cat({name_at(spec, source), "=", value});
}

struct ShownSetting {
  const SettingSpec* spec;
  std::string value;
  Source source;
};

// The settings of the step that are not at their default.
std::vector<ShownSetting> shown_settings(const Settings& settings) {
  std::vector<ShownSetting> shown;
  for (const auto& spec : setting_specs()) {
    const auto source = spec.source(settings);
    if (spec.applies_to == AppliesTo::kStep && source != Source::kDefault)
      shown.push_back({&spec, spec.write(settings), source});
  }
  if (!settings.explain.value) return shown;
  if (settings.explain.source == settings.mode.source) {
    shown.front().value += ",explain";
  } else {
    shown.insert(shown.begin() + (settings.mode.source == Source::kDefault ? 0 : 1),
                 {find_setting("mode"), "explain", settings.explain.source});
  }
  return shown;
}

}  // namespace

std::string setting_name(const Settings& settings, std::string_view name) {
  const auto* const spec = find_setting(name);
  return spec == nullptr ? std::string(name) : name_at(*spec, spec->source(settings));
}

std::string setting_text(const Settings& settings, std::string_view name) {
  const auto* const spec = find_setting(name);
  return spec == nullptr ? std::string(name) : text_at(*spec, spec->source(settings), spec->write(settings));
}

Status apply_setting(Settings& settings, const SettingSpec& spec, std::string_view value, Source source) {
  // No setting takes a control character, so a value that is too long gets the sentence of a wrong one.
  auto applied = spec.apply(settings, value.size() > kMaxSetting ? "\x01" : value, source);
  if (applied) return applied;
  return fail(ErrorCode::kInvalid,
              cat({text_at(spec, source, quote(value)), " is not valid: ", applied.error().message}));
}

Status apply_site_argument(Settings& settings, std::string_view argument) {
  const auto equals = argument.find('=');
  std::vector<std::string> known;
  for (const auto& spec : setting_specs()) {
    if (!spec.is_for_site()) continue;
    if (spec.name == argument.substr(0, equals) && equals != std::string_view::npos) {
      return apply_setting(settings, spec, argument.substr(equals + 1), Source::kSite);
    }
    known.push_back(cat({spec.name, "="}));
  }
  return fail(ErrorCode::kInvalid, cat({"argument ", quote(argument),
                                        " in plugstack.conf is unknown; the known arguments are ", join(known, ", ")}));
}

Status apply_environment(Settings& settings, const Environment& environment, AppliesTo part) {
  Status outcome;
  for (const auto& spec : setting_specs()) {
    const auto value = spec.applies_to != part || spec.variable.empty() ? std::nullopt : environment.get(spec.variable);
    if (!value) continue;
    auto applied = apply_setting(settings, spec, *value, Source::kEnvironment);
    if (!applied && outcome) outcome = std::move(applied);
  }
  return outcome;
}

Settings process_settings(const Environment& environment) {
  Settings settings;
  (void)apply_environment(settings, environment, AppliesTo::kProcess);
  return settings;
}

bool has_partitions(const Settings& settings, std::string_view names) {
  if (settings.partitions.value.empty()) return true;
  const auto known = split(settings.partitions.value, ',');
  const auto asked = split(names.empty() ? "default" : names, ',');
  return std::all_of(asked.begin(), asked.end(),
                     [&](auto name) { return std::find(known.begin(), known.end(), name) != known.end(); });
}

bool lacks_gpus(const Settings& settings, std::size_t tasks, std::size_t gpus) {
  return tasks > gpus && !settings.gpu_share.value && settings.gpu.value != GpuMode::kOff;
}

std::string list_settings(const Settings& settings) {
  std::vector<std::string> texts;
  for (const auto& [spec, value, source] : shown_settings(settings)) texts.push_back(text_at(*spec, source, value));
  return join(texts, ", ");
}

std::string asking_setting(const Settings& settings) {
  std::string by_variable;
  for (const auto& [spec, value, source] : shown_settings(settings)) {
    const bool is_of_mode = is_mode(*spec);
    if (is_of_mode && settings.mode.value != Mode::kOn) continue;
    if (source == Source::kOption) return text_at(*spec, source, value);
    if (is_of_mode && source == Source::kEnvironment) by_variable = text_at(*spec, source, value);
  }
  return by_variable;
}

std::string write_settings(const Settings& settings) {
  std::vector<std::string> items;
  for (const auto& [spec, value, source] : shown_settings(settings)) {
    items.push_back(cat({kSources[static_cast<std::size_t>(source)], ":", spec->name, "=", value}));
  }
  return join(items, " ");
}

Result<Settings> read_settings(std::string_view text) {
  Settings settings;
  if (text.empty()) return settings;
  for (const auto item : split(text, ' ')) {
    if (item.starts_with("set_up:") || item.starts_with("set_by:")) continue;  // see core/step/step_facts.h
    const auto colon = item.find(':');
    const auto equals = item.find('=');
    const auto* const source = std::find(kSources.begin() + 1, kSources.end(), item.substr(0, colon));
    const bool is_item = equals != std::string_view::npos && colon < equals && source != kSources.end();
    const auto* const spec = is_item ? find_setting(item.substr(colon + 1, equals - colon - 1)) : nullptr;
    if (is_item && spec == nullptr) continue;  // of a newer plugin, which has applied it
    if (spec == nullptr || spec->applies_to != AppliesTo::kStep ||
        !spec->apply(settings, item.substr(equals + 1), static_cast<Source>(source - kSources.begin()))) {
      return fail(ErrorCode::kInvalid, cat({"cannot read SLURM_BOOTSTRAP_SETTINGS=", quote(text),
                                            ": another version wrote it, or it was changed"}));
    }
  }
  return settings;
}

}  // namespace bootstrap
