// Every value of every setting, plugstack arguments, and the text form of all settings.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"

#include <string>

#include "property.h"

using bootstrap::Settings;
using bootstrap::Source;

namespace {

void check_message(const bootstrap::Status& applied) {
  if (applied) return;
  const auto& message = applied.error().message;
  check(message.size() < 1024, "a message is one readable sentence");
  check(message.find_first_of("\n\r\x1b") == std::string::npos, "with nothing of the value that moves the cursor");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  for (const auto& spec : bootstrap::setting_specs()) {
    if (spec.applies_to == bootstrap::AppliesTo::kProcess) continue;
    Settings settings;
    const auto applied = apply_setting(settings, spec, text, Source::kOption);
    check_message(applied);
    if (!applied) {
      check(settings == Settings{}, "a wrong value changes nothing");
      continue;
    }
    if (spec.applies_to != bootstrap::AppliesTo::kStep) continue;  // tasks do not receive it
    const auto again = bootstrap::read_settings(write_settings(settings));
    check(again && *again == settings, "settings come back from their text");
  }
  Settings settings;
  check_message(apply_site_argument(settings, text));
  const auto read = bootstrap::read_settings(text);
  if (read) {
    const auto again = bootstrap::read_settings(write_settings(*read));
    check(again && *again == *read, "and the text from any settings");
  }
  return 0;
}
