// The table of settings: the values of each, which source wins, and the message about a wrong value. The names that
// users and sites write are those of the record; etc/doc/stability.md has the rules.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"
#include "core/plan/frameworks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

const SettingSpec& spec(std::string_view site) {
  const auto specs = setting_specs();
  return *std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == site; });
}

TEST(Settings, LaterSourcesWinInAnyOrderOfCalls) {
  const std::pair<Source, const char*> calls[] = {
      {Source::kSite, "2001"}, {Source::kEnvironment, "2002"}, {Source::kOption, "2003"}};
  int order[] = {0, 1, 2};
  do {
    Settings settings;
    for (const auto i : order) ASSERT_TRUE(apply_setting(settings, spec("port"), calls[i].second, calls[i].first));
    EXPECT_EQ(settings.port, (Setting<std::uint16_t>{2003, Source::kOption}));
  } while (std::next_permutation(std::begin(order), std::end(order)));
}

TEST(Settings, EachTakesTheValuesOfItsTableRow) {
  Settings settings;
  for (const auto* argument :
       {"when=always", "grace=off", "port=1024", "port_range=1024-65535", "master_addr=%h-ib0", "claim=off"}) {
    EXPECT_TRUE(apply_site_argument(settings, argument)) << argument;
  }
  EXPECT_FALSE(apply_site_argument(settings, "mode=on")) << "a site asks for no step";
  EXPECT_EQ(settings.grace.value, 0U);
  EXPECT_EQ(settings.when.value, When::kAlways);
  EXPECT_EQ(settings.port.value, 1024);
  EXPECT_EQ(settings.port_range.value, (PortRange{1024, 65535}));
  EXPECT_EQ(settings.address.value, "%h-ib0");
  EXPECT_FALSE(settings.claim.value);
}

TEST(Settings, WrongValuesAreRefusedAndChangeNothing) {
  auto arguments = split(
      "mode= mode=yes mode=on,off mode=explain,explain mode=on, when= partitions=, partitions=gpu,,debug "
      "launchers=, launchers=/opt/farm launchers=a,,b launchers=-x trainers=train;x "
      "when=GPU port= port=0 port=1023 port=65536 port=99999999999999999999 port=-1 port=0x800 port_range= "
      "port_range=2000 port_range=3000-2000 port_range=80-2000 port_range=2000-70000 port_range=1-2-3 "
      "master_addr= master_addr=% master_addr=%x master_addr=a;b master_addr=a% claim= claim=yes bogus=1 port = "
      "preload_library=relative.so preload_library=/a:b gpu=all gpu_share=2 cpu=on ports=9 grace=0 interface=/8 log=on",
      ' ');
  for (const auto* argument : {"port= 2000", "trainers=a b", "master_addr=a b", "preload_library=/a b",
                               "preload_library=/a\nb", "shared_dir=/a b", ""}) {
    arguments.emplace_back(argument);
  }
  for (const auto argument : arguments) {
    Settings settings;
    const auto applied = apply_site_argument(settings, argument);
    ASSERT_FALSE(applied) << argument;
    EXPECT_EQ(settings, Settings{}) << argument;
    EXPECT_EQ(applied.error().message.find('\n'), std::string::npos);
  }
  Settings settings;
  EXPECT_FALSE(apply_site_argument(settings, "master_addr=" + std::string(256, 'a')));
}

TEST(Settings, MessagesNameWhatTheUserTyped) {
  Settings settings;
  EXPECT_EQ(apply_setting(settings, spec("port"), "99", Source::kOption).error().message,
            "--bootstrap-port=\"99\" is not valid: use auto or a port from 1024 to 65535");
  EXPECT_EQ(apply_setting(settings, spec("port"), "99", Source::kEnvironment).error().message,
            "SLURM_BOOTSTRAP_PORT=\"99\" is not valid: use auto or a port from 1024 to 65535");
  EXPECT_EQ(apply_site_argument(settings, "port=99").error().message,
            "port=\"99\" in plugstack.conf is not valid: use auto or a port from 1024 to 65535");
}

TEST(Settings, ExplainLeavesTheModeAlone) {
  Settings settings;
  ASSERT_TRUE(apply_setting(settings, spec("mode"), "on", Source::kEnvironment));
  ASSERT_TRUE(apply_setting(settings, spec("mode"), "explain", Source::kOption));
  EXPECT_EQ(settings.mode.value, Mode::kOn);
  EXPECT_TRUE(settings.explain.value);
}

TEST(Settings, AModeOfALaterSourceReplacesExplainToo) {
  const std::pair<Source, const char*> environment{Source::kEnvironment, "off,explain"};
  const std::pair<Source, const char*> option{Source::kOption, "on"};
  Settings settings;
  for (const auto& [source, value] : {environment, option, environment}) {
    ASSERT_TRUE(apply_setting(settings, spec("mode"), value, source));
  }
  EXPECT_EQ(settings.mode.value, Mode::kOn);
  EXPECT_FALSE(settings.explain.value);
}

TEST(Settings, AreReadFromTheirTextUnchanged) {
  EXPECT_EQ(write_settings({}), "");
  EXPECT_EQ(*read_settings(""), Settings{});
  Settings settings;
  for (const auto* argument : {"when=always", "partitions=gpu,debug", "launchers=farm,our.farm", "trainers=train_it.sh",
                               "port_range=5000-6000", "gpu=narrow"}) {
    ASSERT_TRUE(apply_site_argument(settings, argument)) << argument;
  }
  ASSERT_TRUE(apply_environment(settings, environment_of({{"SLURM_BOOTSTRAP_ADDR", "%h-ib0"},
                                                          {"SLURM_BOOTSTRAP_CLAIM", "off"},
                                                          {"SLURM_BOOTSTRAP_GPU", "first"},
                                                          {"SLURM_BOOTSTRAP_GPU_SHARE", "on"},
                                                          {"SLURM_BOOTSTRAP_CPU", "near"}})));
  ASSERT_TRUE(apply_setting(settings, spec("port"), "2000", Source::kOption));
  const auto text = write_settings(settings);
  EXPECT_EQ(text,
            "site:when=always site:partitions=gpu,debug site:launchers=farm,our.farm site:trainers=train_it.sh "
            "option:port=2000 site:port_range=5000-6000 "
            "environment:master_addr=%h-ib0 environment:claim=off environment:gpu=first environment:gpu_share=on "
            "environment:cpu=near");
  EXPECT_EQ(*succeeded(read_settings(text)), settings);
}

// A node with another plugstack.conf than srun's host, and one with the same.
TEST(Settings, TheEndpointIsThatOfSrun) {
  Settings srun;
  for (const auto& spec : setting_specs()) {
    if (spec.name == "port_range") (void)spec.apply(srun, "21000-21999", Source::kSite);
    if (spec.name == "master_addr") (void)spec.apply(srun, "%h-ib0", Source::kEnvironment);
  }
  Settings node{.port = {4000, Source::kSite}};
  node.address = {"%h-ib0", Source::kEnvironment};
  take_endpoint(node, write_endpoint(srun));
  EXPECT_EQ(node.port_range.value.low, 21000);
  EXPECT_EQ(node.port_range.source, Source::kSite);
  EXPECT_EQ(node.port.value, 0);
  EXPECT_EQ(node.address.source, Source::kEnvironment) << "the user's";
  const auto before = node;
  take_endpoint(node, {"port=1", "gpu=off", "port_range", "master_addr=a b", ""});  // a user can write the message
  EXPECT_EQ(node, before);
}

TEST(Settings, OtherTextIsRefused) {
  for (const auto* text : {"x", "site:port=99", "default:port=2000", "site:port", "nobody:port=2000",
                           "site:port=2000  option:port=2001"}) {
    EXPECT_FALSE(read_settings(text)) << text;
  }
  EXPECT_EQ(read_settings("site:of_a_newer_plugin=1 site:port=2000")->port.value, 2000);
}

TEST(Settings, OfAProcessAreReadFromItsEnvironment) {
  const auto environment = environment_of({{"SLURM_BOOTSTRAP_DEBUG", "1"},
                                           {"SLURM_BOOTSTRAP_TIMEOUT", "20"},
                                           {"SLURM_BOOTSTRAP_TIMING", "1"},
                                           {"SLURM_BOOTSTRAP_NCCL", "/opt/libnccl.so.2"},
                                           {"SLURM_BOOTSTRAP_PMIX", "libpmix.so.2"}});
  const auto own = process_settings(environment);
  EXPECT_TRUE(own.debug.value && own.timing.value);
  EXPECT_EQ(own.timeout.value, 20U);
  EXPECT_EQ(own.nccl_file.value + own.pmix_file.value, "/opt/libnccl.so.2libpmix.so.2");
  EXPECT_EQ(write_settings(own), "") << "they are not sent";
  Settings settings;
  EXPECT_TRUE(apply_environment(settings, environment));
  EXPECT_EQ(settings, Settings{}) << "a step has none of them";
  EXPECT_FALSE(apply_site_argument(settings, "timeout=20"));
  EXPECT_FALSE(read_settings("environment:timeout=20"));
  EXPECT_EQ(apply_environment(settings, environment_of({{"SLURM_BOOTSTRAP_TIMEOUT", "0"}}), AppliesTo::kProcess)
                .error()
                .message,
            "SLURM_BOOTSTRAP_TIMEOUT=\"0\" is not valid: use a number of seconds from 1 to 86400");
}

TEST(SettingName, IsThePlaceWhereItWasSet) {
  Settings settings;
  EXPECT_EQ(setting_name(settings, "port"), "--bootstrap-port");
  EXPECT_EQ(setting_name(settings, "when"), "when= in plugstack.conf");
  settings.port.source = settings.gpu.source = Source::kSite;
  settings.gpu.value = GpuMode::kFirst;
  EXPECT_EQ(setting_name(settings, "port"), "port= in plugstack.conf");
  EXPECT_EQ(setting_text(settings, "gpu"), "gpu=first in plugstack.conf");
  settings.port.source = settings.gpu.source = Source::kEnvironment;
  EXPECT_EQ(setting_name(settings, "port"), "SLURM_BOOTSTRAP_PORT");
  EXPECT_EQ(setting_text(settings, "gpu"), "SLURM_BOOTSTRAP_GPU=first");
  settings.port.source = settings.gpu.source = Source::kOption;
  EXPECT_EQ(setting_name(settings, "port"), "--bootstrap-port");
  EXPECT_EQ(setting_text(settings, "gpu"), "--bootstrap-gpu=first");
}

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
  for (const auto& row : framework_variables()) {
    ASSERT_LT(static_cast<std::size_t>(row.framework), kFrameworkCount) << row.name << ": its framework has no name";
    const auto name = replaced(framework_name(row.framework), "-", "\\-");
    EXPECT_TRUE(has(of_users, cat({".B ", name, "\n"}))) << name << ": slurm-bootstrap.7";
    EXPECT_TRUE(has(of_users, std::string(row.name))) << row.name << ": slurm-bootstrap.7";
  }
}

}  // namespace
}  // namespace bootstrap
