// Topology files: which are read and which are refused.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fake_machine.h"

namespace bootstrap {
namespace {

constexpr const char* kMinimal = "slurm-bootstrap-topology 1\ncpus 0-1\nnuma 0 0-1\nend\n";

class TopologyFile : public testing::Test {
 protected:
  // Written anew with these permissions; the answer is what went wrong.
  std::string refusal(mode_t mode, std::string_view text = kMinimal) const {
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

}  // namespace
}  // namespace bootstrap
