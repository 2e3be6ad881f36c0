// Address and port: who decides, and that neighbours do not meet.
// SPDX-License-Identifier: Apache-2.0
#include "core/rendezvous.h"

#include <gtest/gtest.h>

#include <set>

#include "step_environment.h"

namespace bootstrap {
namespace {

Rendezvous rendezvous(const Environment& environment, const Settings& settings = {}) {
  return *make_rendezvous(*read_task_facts(environment), settings);
}

TEST(Rendezvous, DefaultIsTheHostOfRankZeroAndAComputedPort) {
  const auto where = rendezvous(two_by_two(3));
  EXPECT_EQ(where.address, "node001");
  EXPECT_EQ(where.port, 20000 + 12 * 37);
}

TEST(Rendezvous, SlurmsReservedPortIsPreferred) {
  auto environment = two_by_two();
  environment.set("SLURM_STEP_RESV_PORTS", "12004-12006,12009");
  EXPECT_EQ(rendezvous(environment).port, 12004);
  EXPECT_EQ(rendezvous(environment).port_from, "SLURM_STEP_RESV_PORTS");
}

TEST(Rendezvous, AnAskedPortAndAddressArePreferredToBoth) {
  auto environment = two_by_two();
  environment.set("SLURM_STEP_RESV_PORTS", "12004-12006");
  Settings settings;
  settings.port = {2345, Source::kOption};
  settings.address = {"ib-%h.fabric", Source::kSite};
  const auto where = rendezvous(environment, settings);
  EXPECT_EQ(where.port, 2345);
  EXPECT_EQ(where.port_from, "--bootstrap-port");
  EXPECT_EQ(where.address, "ib-node001.fabric");
}

TEST(ReservedPort, TakesTheFirst) {
  EXPECT_EQ(*first_reserved_port("12000"), 12000);
  EXPECT_EQ(*first_reserved_port("12000-12001"), 12000);
  EXPECT_EQ(*first_reserved_port("12001,12003-12007"), 12001);
  for (const auto* text : {"", "-", "x", "70000", "0-1", " 12000", "[12000-12001]"}) {
    EXPECT_FALSE(first_reserved_port(text)) << text;
  }
}

TEST(ComputedPort, StaysInTheRangeWhateverTheIds) {
  for (const std::uint32_t job : {0U, 1U, 4294967295U}) {
    for (const std::uint32_t step : {0U, 1U, 0xffffffefU}) {
      for (const std::uint32_t restart : {0U, 1U, 4294967295U}) {
        for (const PortRange range : {PortRange{1024, 65535}, PortRange{20000, 29999}, PortRange{5000, 5000}}) {
          const auto port = computed_port({job, step, restart}, range);
          EXPECT_GE(port, range.low);
          EXPECT_LE(port, range.high);
        }
      }
    }
  }
}

TEST(ComputedPort, NeighboursDoNotMeet) {
  // 250 neighbouring jobs with 37 steps each, all at once: 9,250 different ports.
  std::set<std::uint16_t> ports;
  for (std::uint32_t job = 990000; job < 990250; ++job) {
    for (std::uint32_t step = 0; step < 37; ++step) ports.insert(computed_port({job, step, 0}, {}));
  }
  EXPECT_EQ(ports.size(), 250U * 37U);
}

TEST(ComputedPort, ARequeuedJobMoves) {
  std::set<std::uint16_t> ports;
  for (std::uint32_t restart = 0; restart < 50; ++restart) ports.insert(computed_port({12, 0, restart}, {}));
  EXPECT_EQ(ports.size(), 50U);
}

}  // namespace
}  // namespace bootstrap
