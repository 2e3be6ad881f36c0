// plugstack.conf as Slurm reads it, the plugin's file, and the table of one machine.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/plugstack.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "check_step.h"
#include "core/util/text.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

class Folder : public testing::Test {
 protected:
  Folder() {
    path_ = cat({testing::TempDir(), "plugstack-", std::to_string(::getpid())});
    std::filesystem::create_directories(path_);
  }
  ~Folder() override { std::filesystem::remove_all(path_); }

  std::string write(const std::string& name, std::string_view text) {
    auto path = cat({path_, "/", name});
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    (void)::chmod(path.c_str(), 0644);
    return path;
  }

  LocalPlugin read(std::string_view text) {
    return look_at_plugin({.plugstack = write("plugstack.conf", text), .plugin_dir = cat({path_, "/none:", path_})});
  }

  std::string write_plugin(std::string_view slurm = "23.11.4") {
    return write("spank_bootstrap.so", cat({"ELF", std::string(1, '\0'), "slurm-bootstrap plugin 0.1.0 for Slurm ",
                                            slurm, std::string(1, '\0'), "more"}));
  }

  // The table's rows by name.
  CheckRow local_row(std::string_view text, std::string_view name, const std::string& slurm = "23.11.4") {
    auto machine = good_step(1, 1);
    auto& report = *machine.reports[0];
    report.slurm = slurm;
    report.plugin = report.plugin_slurm = {};
    machine.plugin = look_at_plugin({.plugstack = write("plugstack.conf", text)});
    for (auto& row : judge_machine(machine).rows) {
      if (row.name == name) return row;
    }
    return {};
  }

  std::string path_;
};

using PlugstackFile = Folder;

TEST_F(PlugstackFile, TheLineOfThisPluginIsFoundAlsoInIncludedFiles) {
  write("conf.d/20.conf", "# a comment\n\n  optional\t/lib/spank_bootstrap.so when=gpu  port=auto # more\n");
  write("conf.d/10.conf", "optional /lib/other.so\noptional /lib/not_spank_bootstrap.so\n");
  const auto found = read("include conf.d/*.conf\n");
  EXPECT_EQ(found.line, cat({path_, "/conf.d/20.conf:3: optional when=gpu port=auto"}));
  EXPECT_EQ(found.path, "/lib/spank_bootstrap.so");
  EXPECT_TRUE(found.troubles.empty());
}

TEST_F(PlugstackFile, APluginWithoutAPathIsInOneOfSlurmsFolders) {
  const auto plugin = write_plugin();
  EXPECT_EQ(read("required spank_bootstrap.so\n").path, plugin);
}

TEST_F(PlugstackFile, AnErrorHasItsFileAndLine) {
  const auto place = cat({path_, "/plugstack.conf"});
  EXPECT_EQ(read("include\n").troubles,
            std::vector<std::string>{cat({place, ":1: include names no file; Slurm ignores the line"})});
  EXPECT_EQ(read("include none.d/*.conf\n").unmatched,
            std::vector<std::string>{cat({place, ":1: include none.d/*.conf finds no file"})});
  EXPECT_FALSE(read("include plugstack.conf\n").troubles.empty());
}

// Slurm reads the files of a folder in the order of their names.
TEST_F(PlugstackFile, APluginOnTheWrongSideOfOursIsNamedWithBothLines) {
  const std::string ours = "optional /lib/spank_bootstrap.so\n";
  const std::string pyxis = "required /lib/spank_pyxis.so\n";
  const std::string singularity = "required /lib/singularity-exec.so default=x\n";
  EXPECT_TRUE(read(pyxis + ours + singularity + "optional /lib/mpibind.so\n").troubles.empty());
  const auto found = read(singularity + ours + pyxis).troubles;
  const auto place = cat({path_, "/plugstack.conf:"});
  ASSERT_EQ(found.size(), 2U);
  const auto end =
      cat({" ", place, "2, the line of spank_bootstrap.so; in a folder of *.conf files their names decide the order"});
  EXPECT_EQ(found[0], cat({place,
                           "1: /lib/singularity-exec.so starts the program in its own task_init, so that a plugin "
                           "behind it sets nothing; move this line behind",
                           end}));
  EXPECT_EQ(found[1], cat({place,
                           "3: /lib/spank_pyxis.so gives all tasks of a node the environment of one of them, with "
                           "its RANK; move this line before",
                           end}));

  write("conf.d/pyxis.conf", pyxis);
  write("conf.d/zz-bootstrap.conf", ours);
  EXPECT_TRUE(read("include conf.d/*.conf\n").troubles.empty());
  std::filesystem::rename(path_ + "/conf.d/zz-bootstrap.conf", path_ + "/conf.d/bootstrap.conf");
  EXPECT_EQ(read("include conf.d/*.conf\n").troubles.size(), 1U);
  EXPECT_TRUE(read("include conf.d/pyxis.conf\ninclude conf.d/bootstrap.conf\n").troubles.empty());
  EXPECT_TRUE(read(pyxis + singularity).troubles.empty()) << "the plugin is not loaded";
}

TEST_F(PlugstackFile, AMissingFileIsEmptyAndOneThatOthersCanWriteIsUnsafe) {
  EXPECT_TRUE(look_at_plugin({.plugstack = cat({path_, "/none.conf"})}).troubles.empty());
  const auto file = write("plugstack.conf", "optional /lib/spank_bootstrap.so\n");
  (void)::chmod(file.c_str(), 0666);
  const auto found = look_at_plugin({.plugstack = file});
  ASSERT_EQ(found.troubles.size(), 1U);
  EXPECT_NE(found.troubles[0].find("chmod go-w"), std::string::npos);
}

TEST_F(PlugstackFile, IsNextToSlurmConfOrAtPlugStackConfig) {
  const auto conf = write("slurm.conf", "ClusterName=x\nPluginDir=/lib/slurm\n");
  Environment environment;
  environment.set("SLURM_CONF", conf);
  auto files = find_slurm_files(environment, path_);
  EXPECT_EQ(files.plugstack, cat({path_, "/plugstack.conf"}));
  EXPECT_EQ(files.plugin_dir, "/lib/slurm");
  write("slurm.conf", "plugstackconfig = /etc/other.conf # here\n#PlugStackConfig=/no\n");
  EXPECT_EQ(find_slurm_files(environment, path_).plugstack, "/etc/other.conf");
  std::filesystem::remove(conf);
  EXPECT_EQ(find_slurm_files(environment, path_).plugstack, "");
  write("run/slurm/conf/slurm.conf", "");
  EXPECT_EQ(find_slurm_files(environment, path_).plugstack, cat({path_, "/run/slurm/conf/plugstack.conf"}));
}

// A user can set SLURM_CONF to any file. Reading a FIFO without a writer would block.
TEST_F(PlugstackFile, AnEndlessFileIsReadUpToALimit) {
  Environment environment;
  environment.set("SLURM_CONF", "/dev/zero");
  const auto files = find_slurm_files(environment);
  ASSERT_EQ(files.troubles.size(), 1U);
  EXPECT_NE(files.troubles[0].find("/dev/zero is larger than 8 MiB"), std::string::npos);
  EXPECT_EQ(look_at_plugin(files).troubles, files.troubles);
  EXPECT_EQ(look_at_plugin({.plugstack = "/dev/zero"}).troubles[0], files.troubles[0]);

  const auto fifo = cat({path_, "/fifo"});
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  environment.set("SLURM_CONF", fifo);
  EXPECT_TRUE(find_slurm_files(environment).troubles.empty());
  std::filesystem::rename(fifo, path_ + "/spank_bootstrap.so");
  EXPECT_NE(read("optional spank_bootstrap.so\n").trouble.find("is not a plugin of slurm-bootstrap"),
            std::string::npos);
}

TEST_F(PlugstackFile, TheFirstOfManyWrongLinesAreNamed) {
  std::string text;
  for (int line = 0; line < 1000; ++line) text += "nonsense\n";
  const auto found = read(text + "optional /lib/spank_bootstrap.so\n");
  EXPECT_EQ(found.troubles.size(), 8U);
  EXPECT_EQ(found.path, "/lib/spank_bootstrap.so");
}

TEST_F(PlugstackFile, IsReadFromTheOutputOfScontrol) {
  auto files =
      read_slurm_config("PluginDir = /lib/slurm\nPlugStackConfig  = (null)\nSLURM_CONF = /opt/etc/slurm.conf\n");
  EXPECT_EQ(files.plugstack, "/opt/etc/plugstack.conf");
  EXPECT_EQ(files.plugin_dir, "/lib/slurm");
  files = read_slurm_config("PlugStackConfig = /opt/p.conf\nSLURM_CONF = /opt/etc/slurm.conf\n");
  EXPECT_EQ(files.plugstack, "/opt/p.conf");
  EXPECT_EQ(read_slurm_config("slurm_load_ctl_conf error: Unable to contact slurm controller\n").plugstack, "");
}

TEST_F(PlugstackFile, TheTableOfAMachineNamesTheFault) {
  const auto plugin = write_plugin();
  const auto good = cat({"optional ", plugin, " when=always\n"});
  EXPECT_EQ(local_row(good, "plugstack.conf").text, cat({path_, "/plugstack.conf:1: optional when=always"}));
  EXPECT_EQ(local_row(good, "plugin").text, cat({"0.1.0 for Slurm 23.11.4 (", plugin, ")"}));
  EXPECT_EQ(local_row(good, "plugin", "24.11.5").result, CheckResult::kFailed);

  const auto twice = local_row(cat({good, good}), "plugstack.conf");
  EXPECT_EQ(twice.result, CheckResult::kFailed);
  EXPECT_TRUE(twice.text.starts_with(cat({path_, "/plugstack.conf:2: loads the plugin again"}))) << twice.text;
  const auto none = local_row("include none.d/*\n", "plugstack.conf");
  EXPECT_EQ(none.result, CheckResult::kFailed);
  EXPECT_NE(none.text.find("finds no file"), std::string::npos);

  const auto other = write("other/spank_bootstrap.so", "ELF");
  EXPECT_EQ(local_row(cat({"optional ", other, "\n"}), "plugin").text,
            cat({path_, "/plugstack.conf:1: ", other, " is not a plugin of slurm-bootstrap"}));
  (void)::chmod(plugin.c_str(), 0666);
  const auto open = local_row(good, "plugin");
  EXPECT_EQ(open.result, CheckResult::kFailed);
  EXPECT_NE(open.text.find("chmod go-w"), std::string::npos) << open.text;
}

TEST(CheckTable, OfOneMachineNeedsNoStep) {
  auto machine = good_step(1, 1);
  const auto good = judge_machine(machine);
  EXPECT_EQ(good.worst(), CheckResult::kOk);
  EXPECT_NE(table_text(good).find("GPUs           ok         1, all can be opened"), std::string::npos);
  machine.reports[0]->closed_gpus = {"/dev/nvidia7"};
  machine.reports[0]->host = "n[1-3]\x1b";  // any name of a machine
  EXPECT_EQ(judge_machine(machine).worst(), CheckResult::kWarning);
  machine.reports[0] = CheckReport();
  EXPECT_EQ(judge_machine(machine).worst(), CheckResult::kWarning);  // no /dev/shm
}

}  // namespace
}  // namespace bootstrap
