// The names that users and sites write are those of the record. etc/doc/stability.md has the rules.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

TEST(InterfaceRecord, HasEachSetting) {
  std::string names = "# plugstack argument, variable, option, values\n";
  const auto or_none = [](std::string_view name) { return name.empty() ? "-" : name; };
  for (const auto& spec : setting_specs()) {
    names += cat({spec.is_for_site() ? spec.name : "-", " ", or_none(spec.variable), " ", or_none(spec.option), " ",
                  spec.values, "\n"});
  }
  std::ostringstream record;
  record << std::ifstream(TEST_DATA_DIR "/interface/settings.txt").rdbuf();
  EXPECT_EQ(names, record.str()) << "a name that is gone breaks jobs and plugstack.conf; add a new one to the record";
}

}  // namespace
}  // namespace bootstrap
