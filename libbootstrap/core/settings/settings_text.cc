// The settings as one line of text, which carries them from slurmstepd to the tasks.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>
#include <vector>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::array<std::string_view, 4> kSourceNames{"default", "site", "environment", "option"};

struct Shown {
  std::string_view site;
  std::string value;
  Source source;
};

// The mode and whether to explain are one option to users and two settings to us, each with a source of its own.
std::vector<Shown> shown_mode(const Settings& settings) {
  constexpr std::array<std::string_view, 3> kModes{"auto", "on", "off"};
  const std::string mode(kModes[static_cast<std::size_t>(settings.mode.value)]);
  if (!settings.explain.value) return {{"mode", mode, settings.mode.source}};
  if (settings.explain.source == settings.mode.source) return {{"mode", mode + ",explain", settings.mode.source}};
  return {{"mode", mode, settings.mode.source}, {"mode", "explain", settings.explain.source}};
}

std::vector<Shown> shown(const Settings& settings) {
  auto all = shown_mode(settings);
  const auto add = [&](std::string_view site, std::string value, const auto& setting) {
    all.push_back({site, std::move(value), setting.source});
  };
  const auto on_off = [](const Setting<bool>& setting) { return setting.value ? "on" : "off"; };
  const auto& range = settings.port_range.value;
  const auto& port = settings.port;
  const auto& grace = settings.grace;
  add("when", std::string(when_name(settings.when.value)), settings.when);
  add("partitions", settings.partitions.value, settings.partitions);
  add("launchers", settings.launchers.value, settings.launchers);
  add("trainers", settings.trainers.value, settings.trainers);
  add("port", port.value == 0 ? "auto" : std::to_string(port.value), port);
  add("port_range", cat({std::to_string(range.low), "-", std::to_string(range.high)}), settings.port_range);
  add("master_addr", settings.address.value, settings.address);
  add("claim", on_off(settings.claim), settings.claim);
  add("gpu", std::string(gpu_mode_name(settings.gpu.value)), settings.gpu);
  add("gpu_share", on_off(settings.gpu_share), settings.gpu_share);
  add("cpu", settings.cpu_near.value ? "near" : "off", settings.cpu_near);
  add("topology", settings.topology.value, settings.topology);
  add("preload", on_off(settings.preload), settings.preload);
  add("preload_library", settings.preload_library.value, settings.preload_library);
  add("frameworks", write_frameworks(settings.frameworks.value), settings.frameworks);
  add("interface", settings.interface.value.text, settings.interface);
  add("grace", grace.value == 0 ? "off" : std::to_string(grace.value), grace);
  add("shared_dir", settings.shared_dir.value, settings.shared_dir);
  return all;
}

}  // namespace

std::string setting_name(std::string_view site, Source source) {
  for (const auto& spec : setting_specs()) {
    if (spec.site != site) continue;
    const bool is_for_users = !spec.option.empty();
    if (source == Source::kDefault) return setting_name(spec, is_for_users ? Source::kOption : Source::kSite);
    return setting_name(spec, source);
  }
  return std::string(site);
}

std::string setting_text(std::string_view site, Source source, std::string_view value) {
  if (source == Source::kSite) return cat({site, "=", value, " in plugstack.conf"});
  return cat({setting_name(site, source), "=", value});
}

std::string list_settings(const Settings& settings) {
  std::string text;
  for (const auto& [site, value, source] : shown(settings)) {
    if (source == Source::kDefault) continue;
    text += cat({text.empty() ? "" : ", ", setting_text(site, source, value)});
  }
  return text;
}

std::string asking_setting(const Settings& settings) {
  std::string by_variable;
  for (const auto& [site, value, source] : shown(settings)) {
    const bool is_mode = site == "mode";
    if (is_mode && settings.mode.value != Mode::kOn) continue;
    if (source == Source::kOption) return setting_text(site, source, value);
    if (is_mode && source == Source::kEnvironment) by_variable = setting_text(site, source, value);
  }
  return by_variable;
}

std::string write_settings(const Settings& settings) {
  std::string text;
  for (const auto& [site, value, source] : shown(settings)) {
    if (source == Source::kDefault) continue;
    text += cat({text.empty() ? "" : " ", kSourceNames[static_cast<std::size_t>(source)], ":", site, "=", value});
  }
  return text;
}

Result<Settings> read_settings(std::string_view text) {
  Settings settings;
  if (text.empty()) return settings;
  for (const auto item : split(text, ' ')) {
    if (item.starts_with("set_up:") || item.starts_with("set_by:")) continue;  // see core/step/srun_decision.h
    const auto colon = item.find(':');
    const auto equals = item.find('=');
    bool applied = false;
    for (std::size_t source = 1; source < kSourceNames.size() && equals != std::string_view::npos; ++source) {
      if (item.substr(0, colon) != kSourceNames[source]) continue;
      for (const auto& spec : setting_specs()) {
        if (spec.site != item.substr(colon + 1, equals - colon - 1)) continue;
        applied = spec.apply(settings, item.substr(equals + 1), static_cast<Source>(source)).has_value();
      }
    }
    if (!applied)
      return fail(ErrorCode::kInvalid, cat({"cannot read SLURM_BOOTSTRAP_SETTINGS=", quoted(text),
                                            ": another version wrote it, or it was changed"}));
  }
  return settings;
}

}  // namespace bootstrap
