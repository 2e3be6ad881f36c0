// Topology files: which are believed, and the known machines as they are read.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fake_machine.h"
#include "known_machine.h"

namespace bootstrap {
namespace {

constexpr const char* kSmall = "slurm-bootstrap-topology 1\ncpus 0-1\nnuma 0 0-1\nend\n";

class TopologyFile : public testing::Test {
 protected:
  // Written anew with these permissions; the answer is what went wrong.
  std::string refusal(mode_t mode, std::string_view text = kSmall) const {
    folder_.write("/topology.txt", text);
    EXPECT_EQ(::chmod(path().c_str(), mode), 0);
    const auto topology = read_topology_file(path());
    return topology ? "" : topology.error().message;
  }
  std::string path() const { return folder_.root() + "/topology.txt"; }
  std::string begin() const { return "cannot use the topology in \"" + path() + "\": "; }

  FakeMachine folder_;
};

TEST_F(TopologyFile, OfOurOwnIsRead) {
  EXPECT_EQ(refusal(0644), "");
  EXPECT_EQ(refusal(0600), "");
  EXPECT_EQ(read_topology_file(path())->cpus.to_list(), "0-1");
}

TEST_F(TopologyFile, ThatOthersCanWriteIsRefused) {
  for (const mode_t mode : {0664U, 0646U, 0666U}) {
    EXPECT_EQ(refusal(mode), begin() + "users other than its owner can write to it; forbid that with chmod go-w");
  }
}

TEST_F(TopologyFile, OfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  EXPECT_EQ(refusal(0644), "");
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  const auto topology = read_topology_file(path());
  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error().message, begin() + "it belongs to uid 65534; change its owner to root with chown");
}

TEST_F(TopologyFile, ThatIsNoneIsRefused) {
  EXPECT_EQ(read_topology_file(path()).error().code, ErrorCode::kMissing);
  EXPECT_EQ(read_topology_file(path()).error().message, begin() + "No such file or directory");
  EXPECT_NE(read_topology_file(folder_.root()).error().message.find("it is not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(read_topology_file(path()).error().message, begin() + "it is not a regular file");
}

TEST_F(TopologyFile, ThatIsOfAnotherFormIsRefusedWithItsLine) {
  const auto refused = [this](std::string_view text) { return refusal(0644, text).substr(begin().size()); };
  const std::string advice = "; write it again with slurm-bootstrap topology";
  EXPECT_EQ(refused(""), "line 1: it does not begin with \"slurm-bootstrap-topology 1\"" + advice);
  EXPECT_EQ(refused("<?xml version=\"1.0\"?>\n<topology version=\"2.0\"/>\n"), "line 1: it is XML" + advice);
  EXPECT_EQ(refused("slurm-bootstrap-topology 1\ncpus 1-0\nend\n"),
            "line 2: the CPU list \"1-0\" has a range that counts down" + advice);
}

TEST_F(TopologyFile, ThatIsTooLargeIsRefusedUnread) {
  EXPECT_EQ(refusal(0644), "");
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(kMaxTopologyText + 1)), 0);
  EXPECT_EQ(read_topology_file(path()).error().message, begin() + "it is too large for a topology");
}

// "near@numa@device" of each GPU; the numbers are those of the sources that make_topologies.py names.
std::vector<std::string> places(const Topology& topology) {
  std::vector<std::string> places;
  for (const auto& gpu : topology.gpus) {
    places.push_back(cat({gpu.pci, " ", gpu.near.to_list(), " ",
                          gpu.numa ? std::to_string(topology.numa_nodes[*gpu.numa].number) : "?", " ", gpu.device}));
  }
  return places;
}

TEST(KnownMachine, Dgx1CountsMinorsInItsOwnOrder) {
  const auto topology = known_machine("dgx-1");
  EXPECT_EQ(
      places(topology),
      (std::vector<std::string>{"0000:06:00.0 0-19,40-59 0 /dev/nvidia3", "0000:07:00.0 0-19,40-59 0 /dev/nvidia2",
                                "0000:0a:00.0 0-19,40-59 0 /dev/nvidia1", "0000:0b:00.0 0-19,40-59 0 /dev/nvidia0",
                                "0000:85:00.0 20-39,60-79 1 /dev/nvidia7", "0000:86:00.0 20-39,60-79 1 /dev/nvidia6",
                                "0000:89:00.0 20-39,60-79 1 /dev/nvidia5", "0000:8a:00.0 20-39,60-79 1 /dev/nvidia4"}));
  EXPECT_EQ(topology.gpus[4].package, 1U);
}

TEST(KnownMachine, DgxA100HasGpusInHalfOfItsNodes) {
  const auto topology = known_machine("dgx-a100");
  EXPECT_EQ(topology.numa_nodes.size(), 8U);
  EXPECT_EQ(places(topology),
            (std::vector<std::string>{
                "0000:07:00.0 48-63,176-191 3 /dev/nvidia0", "0000:0f:00.0 48-63,176-191 3 /dev/nvidia1",
                "0000:47:00.0 16-31,144-159 1 /dev/nvidia2", "0000:4e:00.0 16-31,144-159 1 /dev/nvidia3",
                "0000:87:00.0 112-127,240-255 7 /dev/nvidia4", "0000:90:00.0 112-127,240-255 7 /dev/nvidia5",
                "0000:b7:00.0 80-95,208-223 5 /dev/nvidia6", "0000:bd:00.0 80-95,208-223 5 /dev/nvidia7"}));
}

TEST(KnownMachine, LumiHasItsGpusInAnotherOrderThanItsNodes) {
  const auto topology = known_machine("eight-gpu-two-per-numa");
  EXPECT_EQ(topology.packages.size(), 1U);
  std::string nodes;
  for (const auto& gpu : topology.gpus) nodes += std::to_string(gpu.numa.value_or(99));
  EXPECT_EQ(nodes, "33110022");
  EXPECT_EQ(topology.gpus[0].near.to_list(), "48-63,112-127");
  EXPECT_EQ(topology.gpus[0].vendor, GpuVendor::kAmd);
  EXPECT_EQ(topology.gpus[7].device, "/dev/dri/renderD135");
}

TEST(KnownMachine, TheMemoryOfAGh200IsNoNode) {
  const auto topology = known_machine("gh200-quad");
  ASSERT_EQ(topology.numa_nodes.size(), 4U);
  EXPECT_EQ(topology.numa_nodes[3].number, 3U);
  EXPECT_EQ(places(topology)[3], "0039:01:00.0 216-287 3 /dev/nvidia3");
}

TEST(KnownMachine, OfACgroupHasItsCpusOnly) {
  const auto topology = known_machine("cgroup-subset");
  EXPECT_EQ(topology.cpus.to_list(), "0-3,20-23");
  EXPECT_EQ(topology.gpus[7].near.to_list(), "20-23");
}

}  // namespace
}  // namespace bootstrap
