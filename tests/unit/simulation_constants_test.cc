// Files of constants: what is read, and what is refused with a line number.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "simulation/constants.h"

namespace bootstrap::simulation {
namespace {

ConstantsFile built_in() {
  auto file = built_in_constants();
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return file ? *file : ConstantsFile{};
}

TEST(SimulationConstants, AreAllBuiltInWithTheirOrigins) {
  const auto file = built_in();
  EXPECT_EQ(file.taken, constant_specs().size());
  EXPECT_FALSE(file.date.empty());
  EXPECT_FALSE(file.machine.empty());
  for (const auto& spec : constant_specs()) {
    EXPECT_TRUE(file.origins.contains(spec.name)) << spec.name;
    EXPECT_FALSE(spec.meaning.empty()) << spec.name;
  }
}

TEST(SimulationConstants, OfAFileTakeThePlaceOfThoseOfTheBase) {
  const auto base = built_in();
  const auto file = parse_constants(
      "# a comment\n\n date = 2026-01-02\nmachine = some cluster, 4 nodes # and a comment\n"
      "root_rank=0.1 ms# measured: here\n  link = 100 Gb/s  # assumed: a better network\nstagger_rate = 5000 /s # "
      "read in a manual\n",
      base);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_DOUBLE_EQ(file->values.root_rank, 1e-4);
  EXPECT_DOUBLE_EQ(file->values.link, 12.5e9);
  EXPECT_DOUBLE_EQ(file->values.stagger_rate, 5000);
  EXPECT_EQ(file->values.hop, base.values.hop);
  EXPECT_EQ(file->origins.at("root_rank"), "measured: here");
  EXPECT_EQ(file->date, "2026-01-02");
  EXPECT_EQ(file->machine, "some cluster, 4 nodes");
  EXPECT_EQ(file->taken, 3U);
}

TEST(SimulationConstants, ComeBackFromTheirText) {
  const auto base = built_in();
  const auto again = parse_constants(constants_text(base), {});
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->taken, constant_specs().size());
  EXPECT_EQ(again->origins, base.origins);
  for (const auto& spec : constant_specs()) {
    const double value = base.values.*spec.member;
    EXPECT_NEAR(again->values.*spec.member, value, 1e-3 * value) << spec.name;
  }
}

// What the parser says of a text with one bad line.
std::string complaint(const std::string& text) {
  const auto file = parse_constants(text, {});
  return file ? "" : file.error().message;
}

TEST(SimulationConstants, ThatAreWrongAreRefusedInOneSentence) {
  EXPECT_EQ(complaint("hop = 5 us # measured\nhpo = 5 us # measured"),
            "constants, line 2: there is no constant \"hpo\"; slurm-bootstrap simulate --print-constants lists them");
  EXPECT_EQ(complaint("hop 5 us"), "constants, line 1: \"hop 5 us\" is not \"name = value unit  # how\"");
  EXPECT_EQ(complaint("\n\nhop = 5 kB # measured"),
            "constants, line 3: hop: unit \"kB\" is not known; it takes s, ms, us, ns");
  EXPECT_EQ(complaint("hop = 5 # measured"), "constants, line 1: hop: unit \"\" is not known; it takes s, ms, us, ns");
  EXPECT_EQ(complaint("tree_width = 5 us # measured"),
            "constants, line 1: tree_width: unit \"us\" is not known; it takes no unit");
  EXPECT_EQ(complaint("hop = 5 us\n"),
            "constants, line 1: hop: say how it was found, behind #: measured, computed, read in or assumed, and more");
  EXPECT_EQ(complaint("hop = 1 us # measured\nhop = 2 us # measured"), "constants, line 2: \"hop\" is there twice");
  EXPECT_EQ(complaint("tree_width = 1 # assumed"), "constants, line 1: tree_width must be 2 or more");
  EXPECT_EQ(complaint("tree_width = 2.5 # assumed"), "constants, line 1: tree_width must be a whole number");
  EXPECT_EQ(complaint("link = 0 Gb/s # assumed"), "constants, line 1: link must be 0.001 at least");
  EXPECT_EQ(complaint("hop = 2e4 s # assumed"), "constants, line 1: hop must be an hour at most");
  EXPECT_EQ(complaint("machine = a\001b"), "constants, line 1: machine is not plain, short text");
  for (const std::string bad : {"x", "-1", "nan", "inf", "1e10", "", "0x10 q"}) {
    EXPECT_NE(complaint("hop = " + bad + " us # measured"), "") << bad;
  }
  EXPECT_EQ(complaint(std::string(kMaxConstantsText + 1, '\n')), "constants: the file is larger than 64 KiB");
}

TEST(SimulationConstants, AreShownInAUnitThatFits) {
  const auto text = [](std::string_view name, double value) {
    for (const auto& spec : constant_specs()) {
      if (spec.name == name) return constant_text(spec, value);
    }
    return std::string("no such constant");
  };
  EXPECT_EQ(text("hop", 90e-6), "90 us");
  EXPECT_EQ(text("hop", 0.0123), "12.3 ms");
  EXPECT_EQ(text("hop", 0), "0 ns");
  EXPECT_EQ(text("link", 1.25e9), "10 Gb/s");
  EXPECT_EQ(text("tree_width", 16), "16");
  EXPECT_EQ(text("stagger_rate", 7000), "7000 /s");
}

}  // namespace
}  // namespace bootstrap::simulation
