// Address and port: which source decides, and that neighbouring steps have different ports.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/master_endpoint.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

MasterEndpoint rendezvous(const Environment& environment, const Settings& settings = {}) {
  return *choose_master_endpoint(*read_task_facts(environment), settings);
}

TEST(MasterEndpoint, IsTheRequestedOneOrSlurmsOrComputed) {
  const auto computed = rendezvous(two_by_two(3));
  EXPECT_EQ(computed.address, "node001") << "the host of rank 0";
  EXPECT_EQ(computed.port, 20000 + 12 * 37);
  const auto environment = with(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "12004-12006,12009"}});
  EXPECT_EQ(rendezvous(environment).port, 12004);
  EXPECT_EQ(rendezvous(environment).port_from, "SLURM_STEP_RESV_PORTS");
  Settings settings;
  settings.port = {2345, Source::kOption};
  settings.address = {"ib-%h.fabric", Source::kSite};
  const auto requested = rendezvous(environment, settings);
  EXPECT_EQ(requested.port, 2345);
  EXPECT_EQ(requested.port_from, "--bootstrap-port");
  EXPECT_EQ(requested.address, "ib-node001.fabric");
}

using Ports = std::vector<std::uint16_t>;

TEST(ReservedPorts, AreReadInSlurmsOrder) {
  auto environment = two_by_two();
  const auto read = [&](const char* text) {
    environment.set("SLURM_STEP_RESV_PORTS", text);
    return read_reserved_ports(environment);
  };
  EXPECT_EQ(read("12000"), Ports{12000});
  EXPECT_EQ(read("12001,12003-12005"), (Ports{12001, 12003, 12004, 12005}));
  EXPECT_EQ(read(""), std::nullopt);
  for (const auto* text : {"-", "x", "70000", "0-1", "4", "1023-1030", " 12000", "[12000-12001]"}) {
    EXPECT_EQ(read(text), Ports()) << text;
    EXPECT_FALSE(choose_master_endpoint(*read_task_facts(environment), {})) << text;
  }
  EXPECT_EQ(read("12001,x,12002"), Ports{12001});
}

TEST(ReservedPorts, LeaveOutThoseOfAnotherContract) {
  auto environment =
      with(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "12000-12003"}, {"PMI_CONTROL_PORT", "12000,12002"}});
  EXPECT_EQ(read_reserved_ports(environment), (Ports{12001, 12003}));
  environment.set("SLURM_MPI_TYPE", "cray_shasta");
  environment.unset("PMI_CONTROL_PORT");
  EXPECT_EQ(read_reserved_ports(environment), (Ports{12001, 12002, 12003}));
  environment.set("SLURM_STEP_RESV_PORTS", "12000");
  EXPECT_EQ(read_reserved_ports(environment), std::nullopt);
}

// 64 times the whole range: before there was a bound, the code visited each port.
TEST(ReservedPorts, AreNoMoreThanAStepCanHave) {
  auto environment = two_by_two();
  std::string ranges = "1024-65535";
  for (int i = 1; i < 64; ++i) ranges += ",1024-65535";
  environment.set("SLURM_STEP_RESV_PORTS", ranges);
  EXPECT_EQ(read_reserved_ports(environment)->size(), 4096U);
}

TEST(PortRange, MustHoldAllPortsOfTheStep) {
  const auto facts = *read_task_facts(two_by_two());
  const auto refusal = [&](PortRange range, const char* frameworks, Source source = Source::kOption) {
    Settings settings;
    settings.port_range = {range, source};
    settings.frameworks = {*parse_frameworks(frameworks), Source::kOption};
    const auto plan = plan_step(facts, settings);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(refusal({30000, 30000}, "tensorflow"),
            "--bootstrap-port-range: 30000-30000 has 1 port, but MASTER_PORT and the frameworks of this step need 3; "
            "use a range of at least 3 ports");
  EXPECT_EQ(refusal({30000, 30001}, "tensorflow", Source::kSite).substr(0, 52),
            "port_range= in plugstack.conf: 30000-30001 has 2 por");
  EXPECT_EQ(refusal({30000, 30002}, "tensorflow"), "");
  EXPECT_EQ(refusal({30000, 30000}, "auto"), "") << "no more ports were requested by name";
  // The control: in a range that is too small two ports of one step are the same.
  const PortRange two{30000, 30001};
  std::set<std::uint16_t> ports{computed_port(facts.id, two)};
  for (const std::uint32_t n : {1U, 2U}) ports.insert(further_port(facts, two, n));
  EXPECT_EQ(ports.size(), 2U);
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

TEST(ComputedPort, DiffersBetweenNeighbouringSteps) {
  // 250 neighbouring jobs with 37 steps each, all at once: 9,250 different ports.
  std::set<std::uint16_t> ports;
  for (std::uint32_t job = 990000; job < 990250; ++job) {
    for (std::uint32_t step = 0; step < 37; ++step) ports.insert(computed_port({job, step, 0}, {}));
  }
  EXPECT_EQ(ports.size(), 250U * 37U);
  std::set<std::uint16_t> of_a_requeued_job;
  for (std::uint32_t restart = 0; restart < 50; ++restart)
    of_a_requeued_job.insert(computed_port({12, 0, restart}, {}));
  EXPECT_EQ(of_a_requeued_job.size(), 50U);
}

TEST(SaltOfStep, KeepsNeighboursApartWhateverTheRandomNumbersAre) {
  std::mt19937_64 random(20261129);
  const auto port = [&](const StepId& id, const PortRange& range) {
    return computed_port(id, range, salt_of_step(id, range, random()));
  };
  for (const PortRange range : {PortRange{20000, 29999}, PortRange{30000, 30015}}) {
    for (std::uint32_t first = 1; first < 2000; first += 7) {
      std::set<std::uint16_t> of_a_job, of_jobs;
      for (std::uint32_t i = 0; i < 16; ++i) {
        of_a_job.insert(port({5, first + i, 0}, range));
        of_jobs.insert(port({first + i, 0, 0}, range));
      }
      EXPECT_EQ(of_a_job.size(), 16U) << first;
      EXPECT_EQ(of_jobs.size(), 16U) << first;
    }
  }
  std::set<std::uint16_t> of_one_step;
  for (int i = 0; i < 2000; ++i) of_one_step.insert(port({5, 0, 0}, {}));
  EXPECT_GT(of_one_step.size(), 500U) << "others can guess it";
  EXPECT_EQ(salt_of_step({5, 0, 0}, {}, 0), 0U);
  EXPECT_EQ(salt_of_step({5, 0, 0}, {5000, 5014}, 77), 77U) << "a small range has no room for neighbours";
}

TEST(FurtherPorts, AreDifferentAndStayInTheRange) {
  for (const PortRange range : {PortRange{20000, 29999}, PortRange{30000, 30015}}) {
    for (std::uint32_t job = 1; job < 500; ++job) {
      auto environment = with(two_by_two(), {{"SLURM_JOB_ID", std::to_string(job)}});
      const auto facts = *read_task_facts(environment);
      std::set<std::uint16_t> ports{computed_port(facts.id, range)};
      for (std::uint32_t n = 1; n <= 9; ++n) {
        const auto port = further_port(facts, range, n);
        EXPECT_TRUE(port >= range.low && port <= range.high);
        EXPECT_TRUE(ports.insert(port).second) << job << " " << n;
      }
    }
  }
}

TEST(FurtherPorts, AreSlurmsIfItReservedAsMany) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "12004-12005,12009"}});
  const auto facts = *read_task_facts(environment);
  EXPECT_EQ(further_port(facts, {}, 1), 12005);
  EXPECT_EQ(further_port(facts, {}, 2), 12009);
  EXPECT_GE(further_port(facts, {}, 3), 20000);
}

}  // namespace
}  // namespace bootstrap
