// The interface to an address: the kernel's tables, and the result of each choice on a node.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/network.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "probe/machine.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

// The table of a node with a management network, InfiniBand and Docker; 10.1.0.0/16 is eth0, 10.2.0.0/16 is ib0.
constexpr const char* kTable =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "ib1\t00000000\t0100020A\t0003\t0\t0\t900\t00000000\t0\t0\t0\n"
    "eth0\t0000010A\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0\n"
    "ib0\t0000020A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth9\t0000030A\t00000000\t0000\t0\t0\t0\t0000FFFF\t0\t0\t0\n"   // down
    "eth9\t0000040A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0\n";  // refuses
constexpr const char* kTable6 =
    "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 "
    "00000001 00000000 00000001      ib0\n"
    "ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 "
    "00000004 00000000 00000001     eth0\n"
    "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 "
    "00000002 00000000 80200001       lo\n";

std::string to(const std::vector<Route>& routes, const char* address) {
  return interface_to(routes, *parse_ip_address(address)).value_or("none");
}

TEST(Routes, TheLongestPrefixWinsThenTheSmallestMetric) {
  const auto routes = parse_ipv4_routes(kTable);
  EXPECT_EQ(routes.size(), 5U);
  EXPECT_EQ(to(routes, "10.1.3.4"), "eth0");
  EXPECT_EQ(to(routes, "10.2.3.4"), "ib0");
  EXPECT_EQ(to(routes, "172.17.0.9"), "docker0");
  EXPECT_EQ(to(routes, "8.8.8.8"), "eth0");  // not ib1, whose default route has a larger metric
  EXPECT_EQ(to(routes, "fd00::1"), "none");
  const auto routes6 = parse_ipv6_routes(kTable6);
  EXPECT_EQ(to(routes6, "fd00::1"), "ib0");
  EXPECT_EQ(to(routes6, "fe00::1"), "none");
  EXPECT_EQ(to(routes6, "10.2.3.4"), "none");
}

TEST(Routes, GarbageIsIgnored) {
  for (const auto* table : {"", "\n\n", "eth0", "eth0 x y z a b c d e", "eth0\t1\t2\t3",
                            "\xff\xff\t0\t0\t0\t0\t0\t0\t0", "eth0\t000000000\t00000000\t0001\t0\t0\t-1\t0000FFFF"}) {
    EXPECT_TRUE(parse_ipv4_routes(table).empty()) << table;
    EXPECT_TRUE(parse_ipv6_routes(table).empty()) << table;
  }
}

std::string chosen(const char* choice, const char* address = "10.2.0.1") {
  const auto found = choose_interface(*parse_interface(choice), parse_ipv4_routes(kTable), address, "node007");
  if (!found) return "error: " + found.error().message;
  return *found ? **found : "nothing";
}

TEST(Interface, IsTheRequestedOne) {
  EXPECT_EQ(chosen("auto"), "ib0");
  EXPECT_EQ(chosen("gloo"), "ib0");
  EXPECT_EQ(chosen("eth0"), "eth0");
  EXPECT_EQ(chosen("10.0.0.0/8"), "eth0");
  EXPECT_EQ(chosen("10.2.0.0/16"), "ib0");
  EXPECT_EQ(chosen("10.2.128.0/17"), "ib0");  // the interface's own network is the larger one
  EXPECT_EQ(chosen("off"), "nothing");
  for (const auto* const unused : {"127.0.1.1", "", "node001"}) EXPECT_EQ(chosen("auto", unused), "nothing") << unused;
  for (const auto* const missing : {"ib7", "192.168.0.0/16"}) {
    EXPECT_EQ(chosen(missing),
              "error: node007 has no such interface with an address; it has eth0, ib1, ib0, docker0; use one of these, "
              "a network such as 10.0.0.0/8, or auto");
  }
}

TEST(Interface, TheNarrowestNetworkAroundTheRequestedOneIsUsed) {
  const Route wide{"eth0", *parse_ip_prefix("10.0.0.0/8")};
  const Route narrow{"ib0", *parse_ip_prefix("10.149.0.0/16")};
  const Route inside{"ib1", *parse_ip_prefix("10.149.3.128/25")};
  const auto network = *parse_ip_prefix("10.149.3.0/24");
  EXPECT_EQ(interface_in({wide, narrow}, network), "ib0");
  EXPECT_EQ(interface_in({narrow, wide}, network), "ib0");
  EXPECT_EQ(interface_in({wide, inside, narrow}, network), "ib1");
}

TEST(Interface, RefusesOtherText) {
  for (const auto* text :
       {"", "a b", "eth0/1", "10.0.0.0/33", "1.2.3/8", "a-name-of-more-than-15", "..", "x;y", "/8"}) {
    EXPECT_FALSE(parse_interface(text)) << text;
  }
  EXPECT_FALSE(parse_interface(std::string_view("::\0 /4", 6)));  // a C string would end here
}

TEST(Prefix, ContainsByItsBits) {
  const auto prefix = *parse_ip_prefix("10.1.2.3/15");
  EXPECT_TRUE(prefix.contains(*parse_ip_address("10.0.255.255")));
  EXPECT_FALSE(prefix.contains(*parse_ip_address("10.2.0.0")));
  EXPECT_TRUE(parse_ip_prefix("0.0.0.0/0")->contains(*parse_ip_address("255.1.2.3")));
  EXPECT_FALSE(parse_ip_prefix("0.0.0.0/0")->contains(*parse_ip_address("::1")));
  EXPECT_TRUE(parse_ip_prefix("fd00::/8")->contains(*parse_ip_prefix("fd12:3456::/32")));
}

class NodeFiles : public ::testing::Test {
 protected:
  NodeFiles() {
    char name[] = "/tmp/bootstrap-network-XXXXXX";
    root_ = ::mkdtemp(name);
    std::filesystem::create_directories(root_ + "/proc/net");
    std::filesystem::create_directories(root_ + "/sys/class/net/ib0/device/infiniband/mlx5_2");
    std::ofstream(root_ + "/proc/net/route") << kTable;
    std::ofstream(root_ + "/sys/class/net/ib0/dev_port") << "1\n";
  }
  ~NodeFiles() override { std::filesystem::remove_all(root_); }

  StepFacts facts(const char* interface, const char* master_ip) const {
    auto facts = *read_task_facts(two_by_two());
    facts.meeting.ours = master_ip;
    const Settings settings{.interface = {*parse_interface(interface)}};
    gather_network(facts, settings, root_);
    return facts;
  }

  std::string root_;
};

TEST(OwnAddress, IsOneThatASocketCanBind) {
  for (const auto* own : {"127.0.0.1", "0.0.0.0", "", "no number"}) EXPECT_TRUE(is_own_address(own)) << own;
  for (const auto* other : {"192.0.2.7", "2001:db8::7"}) EXPECT_FALSE(is_own_address(other)) << other;
}

TEST_F(NodeFiles, AreReadIfNeeded) {
  EXPECT_EQ(facts("gloo", "10.2.0.1").routes.size(), 5U);
  EXPECT_TRUE(facts("gloo", "10.2.0.1").rdma.empty());
  EXPECT_TRUE(facts("gloo", "").routes.empty());
  EXPECT_TRUE(facts("off", "10.2.0.1").routes.empty());
  const auto named = facts("ib0", "");
  ASSERT_EQ(named.rdma.size(), 1U);
  EXPECT_EQ(named.rdma[0].interface, "ib0");
  EXPECT_EQ(named.rdma[0].device, "mlx5_2:2");
}

}  // namespace
TEST(Interfaces, AreNamedForGlooInFull) {
  const std::vector<std::string> node{"docker0", "eth0", "eth1"};
  for (const auto* text : {"eth0", "eth0,eth1"}) EXPECT_TRUE(names_interface_for_gloo(text, node)) << text;
  for (const auto* text : {"ib0", "eth", "=eth0", "^lo,docker", "eth0,ib0", "lo"}) {
    EXPECT_FALSE(names_interface_for_gloo(text, node)) << text;
  }
}

TEST(Interfaces, AreNamedForNcclAsItReadsThem) {
  const std::vector<std::string> node{"docker0", "eth0", "eth1"};
  for (const auto* text : {"eth", "=eth1", "ib,eth", "ib0,=eth0,eth1", "^lo,docker", "^=eth0", "eth0:5000"}) {
    EXPECT_TRUE(names_interface_for_nccl(text, node)) << text;
  }
  for (const auto* text : {"ib", "=eth", "=ib0,ib1", "^eth,docker", "lo"}) {
    EXPECT_FALSE(names_interface_for_nccl(text, node)) << text;
  }
}

}  // namespace bootstrap
