// The releases of libpmi that the srun of a step answers.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/libpmi_release.h"

#include <gtest/gtest.h>

#include "core/settings/settings.h"

namespace bootstrap {
namespace {

constexpr long k2205 = 0x260000;  // slurm_api_version() of Debian 12, 13 and 14
constexpr long k2411 = 0x2a0000;
constexpr long k2605 = 0x2d0000;

TEST(LibpmiRelease, IsAcceptedOnlyIfSrunAnswersIt) {
  const auto fits = [](const char* step, long api) {
    return why_not_libpmi({step, ""}, api, "/x/libpmi.so.0").empty();
  };
  EXPECT_TRUE(fits("22.05.8", k2205) && fits("24.11.5", k2411) && fits("26.05.5", k2605));
  EXPECT_TRUE(fits("23.11.1", k2205) && fits("26.05.5", k2411));
  EXPECT_FALSE(fits("24.05.1", k2205) || fits("25.11.7", k2205) || fits("26.05.5", k2205));
  EXPECT_FALSE(fits("22.05.8", k2411) || fits("24.11.5", k2605)) << "srun knows no later protocol";
  EXPECT_TRUE(fits("", k2205) && fits("26.11.0", k2205) && fits("26.05.5", 0x2e0000)) << "unknown releases are tried";
}

TEST(LibpmiRelease, TheMessageNamesBothReleases) {
  const auto sentence = why_not_libpmi({"25.11.7", ""}, k2205, "/usr/lib/libpmi.so.0");
  EXPECT_EQ(sentence.find("/usr/lib/libpmi.so.0 is Slurm 22.05's, and the step is Slurm 25.11.7's"), 0U) << sentence;
  EXPECT_EQ(slurm_of_api(k2411), "Slurm 24.11");
  EXPECT_EQ(slurm_of_api(0), "");
}

TEST(LibpmiRelease, TheLibraryReadsWhatSlurmstepdWrote) {
  const auto item = write_slurm({"26.05.5", "/opt/slurm/lib"});
  const auto read = read_slurm("set_up:world " + item + " site:claim=off");
  EXPECT_EQ(read.version, "26.05.5");
  EXPECT_EQ(read.folder, "/opt/slurm/lib");
  EXPECT_EQ(read_slurm("set_up:world site:slurm=").version, "");
  EXPECT_TRUE(read_settings(item)) << "it is not a setting";
}

}  // namespace
}  // namespace bootstrap
