// The owner of the PMIx variables: this step, none, or another step.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/pmix_environment.h"

#include <gtest/gtest.h>

namespace bootstrap {
namespace {

constexpr StepId kStep{12, 3, 0};

Environment slurms() {
  Environment environment;
  environment.set("PMIX_NAMESPACE", "slurm.pmix.12.3");
  environment.set("PMIX_RANK", "7");
  environment.set("PMIX_SERVER_URI41", "pmix-server.17549;tcp4://127.0.0.1:46173");
  environment.set("PMIX_SERVER_URI2", "pmix-server.17549;tcp4://127.0.0.1:1");
  return environment;
}

ErrorCode refusal(const Environment& environment) {
  const auto server = check_pmix_environment(environment, kStep, 7);
  EXPECT_FALSE(server);
  if (server) return ErrorCode::kLimit;
  EXPECT_NE(server.error().message.find("srun --mpi=pmix"), std::string::npos) << server.error().message;
  return server.error().code;
}

TEST(PmixGate, AcceptsTheOwnServer) {
  const auto server = check_pmix_environment(slurms(), kStep, 7);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ(server->name_space, "slurm.pmix.12.3");
  EXPECT_EQ(server->port, 46173);
  EXPECT_TRUE(server->loses_early_messages);
  auto newer = slurms();
  newer.set("SLURM_JOB_START_TIME", "1795616689");  // releases that set it lose no messages
  EXPECT_FALSE(check_pmix_environment(newer, kStep, 7)->loses_early_messages);
}

TEST(PmixGate, ReportsMissingVariables) {
  EXPECT_EQ(refusal({}), ErrorCode::kMissing);
  auto environment = slurms();
  environment.unset("PMIX_NAMESPACE");
  EXPECT_EQ(refusal(environment), ErrorCode::kMissing);
  environment = slurms();
  environment.unset("PMIX_SERVER_URI41");
  environment.unset("PMIX_SERVER_URI2");
  EXPECT_EQ(refusal(environment), ErrorCode::kMissing);
}

TEST(PmixGate, RefusesLeftoversOfAnotherStepOrLauncher) {
  for (const auto* name_space : {"slurm.pmix.12.2", "slurm.pmix.11.3", "slurm.pmix.12.33", "prterun-node001-1@1"}) {
    auto environment = slurms();
    environment.set("PMIX_NAMESPACE", name_space);
    EXPECT_EQ(refusal(environment), ErrorCode::kMissing) << name_space;
  }
  for (const auto* rank : {"8", "", "-7", "7 ", "four"}) {
    auto environment = slurms();
    environment.set("PMIX_RANK", rank);
    EXPECT_EQ(refusal(environment), ErrorCode::kDisagreement) << rank;
  }
}

TEST(PmixGate, ReadsThePortOfAnAddress) {
  EXPECT_EQ(port_of_server("pmix-server.1;tcp4://127.0.0.1:46173"), 46173);
  EXPECT_EQ(port_of_server("pmix-server.1;tcp6://[::1]:9"), 9);
  for (const auto* text : {"", "tcp4", "a;tcp4://127.0.0.1:", "a;tcp4://127.0.0.1:0", "a;tcp4://127.0.0.1:65536",
                           "a;usock:/tmp/x:80", "a;tcp4://127.0.0.1:12x"}) {
    EXPECT_FALSE(port_of_server(text)) << text;
  }
}

}  // namespace
}  // namespace bootstrap
