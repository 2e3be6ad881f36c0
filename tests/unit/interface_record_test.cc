// The names that users and sites write are those of the record. etc/doc/stability.md has the rules.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/settings/settings.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string text_of(const std::string& path) {
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

TEST(InterfaceRecord, EachSettingIsDescribed) {
  const std::string etc = TEST_DATA_DIR "/../../etc/";
  const auto page = text_of(etc + "doc/stability.md");
  const auto of_users = text_of(etc + "man/slurm-bootstrap.7");
  const auto of_sites = text_of(etc + "man/spank_bootstrap.8");
  const auto line = text_of(etc + "plugstack.conf.d/bootstrap.conf.in");
  const auto has = [](const std::string& text, const std::string& word) {
    return text.find(word) != std::string::npos;
  };
  for (const auto& spec : setting_specs()) {
    const auto option = replaced(spec.option, "-", "\\-");
    EXPECT_TRUE(has(page, cat({"`", spec.name, "`"}))) << spec.name << " has no row in stability.md";
    EXPECT_TRUE(spec.option.empty() || has(of_users, cat({"\\-\\-", option}))) << spec.option << ": slurm-bootstrap.7";
    EXPECT_TRUE(spec.variable.empty() || has(of_users, std::string(spec.variable)))
        << spec.variable << ": slurm-bootstrap.7";
    if (!spec.is_for_site()) continue;
    EXPECT_TRUE(has(of_sites, cat({spec.name, "="}))) << spec.name << " is not in spank_bootstrap.8";
    EXPECT_TRUE(has(line, cat({spec.name, "="}))) << spec.name << " is not in bootstrap.conf.in";
  }
}

}  // namespace
}  // namespace bootstrap
