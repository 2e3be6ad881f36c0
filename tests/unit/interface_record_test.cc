// The names that users and sites write are those of the record. etc/doc/stability.md has the rules.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string text_of(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(InterfaceRecord, HasEachSetting) {
  std::string names = "# plugstack argument, variable, option, values\n";
  const auto or_none = [](std::string_view name) { return name.empty() ? "-" : name; };
  for (const auto& spec : setting_specs()) {
    names += cat({spec.is_for_site() ? spec.name : "-", " ", or_none(spec.variable), " ", or_none(spec.option), " ",
                  spec.values, "\n"});
  }
  EXPECT_EQ(names, text_of(TEST_DATA_DIR "/interface/settings.txt"))
      << "a name that is gone breaks jobs and plugstack.conf; add a new one to the record";
}

TEST(InterfaceRecord, NamesWhoNeedsEachSetting) {
  const auto page = text_of(TEST_DATA_DIR "/../../etc/doc/stability.md");
  for (const auto& spec : setting_specs()) {
    EXPECT_NE(page.find(cat({"`", spec.name, "`"})), std::string::npos) << spec.name << " has no row in stability.md";
  }
}

}  // namespace
}  // namespace bootstrap
