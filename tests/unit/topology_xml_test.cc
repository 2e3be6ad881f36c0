// The reader of hwloc's XML on small texts: what it takes from them, and what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include "core/topology_xml.h"

#include <gtest/gtest.h>

#include "core/text.h"

namespace bootstrap {
namespace {

CpuSet cpus(std::string_view list) { return *CpuSet::parse_list(list); }

std::string topology_of(std::string_view objects) {
  return cat({"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n",
              "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" cpuset=\"0x0000000f\">\n",
              "<info name=\"Backend\" value=\"Linux\"/>\n", objects,
              "</object>\n<support name=\"x\"/>\n</topology>\n"});
}

std::string gpu(std::string_view address, std::string_view inside = "", std::string_view type = "0302 [10de:2330]") {
  return cat({"<object type=\"Bridge\" bridge_type=\"1-1\"><object type=\"PCIDev\" pci_busid=\"", address,
              "\" pci_type=\"", type, " [10de:16c1] a1\">", inside, "</object></object>\n"});
}

std::string package(std::string_view number, std::string_view mask, std::string_view inside = "") {
  return cat({"<object type=\"Package\" os_index=\"", number, "\" cpuset=\"", mask, "\">",
              "<object type=\"NUMANode\" os_index=\"", number, "\" cpuset=\"", mask, "\"><page_type size=\"4096\"/>",
              "</object>", inside, "</object>\n"});
}

std::string info(std::string_view name, std::string_view value) {
  return cat({"<info name=\"", name, "\" value=\"", value, "\"/>"});
}

Topology read(std::string_view objects) {
  auto topology = parse_topology_xml(topology_of(objects));
  EXPECT_TRUE(topology) << topology.error().message;
  return topology ? *topology : Topology();
}

std::string refusal(std::string_view text) {
  const auto topology = parse_topology_xml(text);
  return topology ? "accepted" : topology.error().message;
}

TEST(TopologyXml, ReadsPackagesNodesAndGpus) {
  const auto topology =
      read(package("1", "0x0000000c", gpu("0000:c1:00.0")) + package("0", "0x3", gpu("0000:1b:00.0")));
  EXPECT_EQ(topology.cpus, cpus("0-3"));
  ASSERT_EQ(topology.packages.size(), 2U);
  EXPECT_EQ(topology.packages[0].cpus, cpus("0-1"));
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.numa_nodes[1].number, 1U);
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[0].pci, "0000:1b:00.0");
  EXPECT_EQ(topology.gpus[0].near, cpus("0-1"));
  EXPECT_EQ(topology.gpus[1].near, cpus("2-3"));
  EXPECT_EQ(topology.gpus[1].package, 1U);
}

TEST(TopologyXml, AGpuBelowTheMachineHasNoPlaceAmongSeveral) {
  const auto topology = read(package("0", "0x3") + package("1", "0xc") + gpu("0000:1b:00.0"));
  EXPECT_TRUE(topology.gpus.at(0).near.empty());
  EXPECT_EQ(read(package("0", "0xf") + gpu("0000:1b:00.0")).gpus.at(0).near, cpus("0-3"));
}

TEST(TopologyXml, ReadsOurInfos) {
  const auto inside = info(kDeviceInfo, "/dev/nvidia3") + info(kUuidInfo, "GPU-12-ab") + info("GPUModel", "A &amp; B");
  const auto found = read(package("0", "0xf", gpu("00000000:1B:00.0", inside))).gpus.at(0);
  EXPECT_EQ(found.pci, "0000:1b:00.0");
  EXPECT_EQ(found.device, "/dev/nvidia3");
  EXPECT_EQ(found.uuid, "GPU-12-ab");
  EXPECT_EQ(found.name, "A & B");
}

TEST(TopologyXml, ReadsInfosOfHwloc) {
  const auto nvml = cat({info("PCIDevice", "GH100"), "<object type=\"OSDev\" name=\"nvml0\" osdev_type=\"1\">",
                         info("NVIDIAUUID", "GPU-5"), info("GPUModel", "NVIDIA H100"), "</object>"});
  const auto found = read(package("0", "0xf", gpu("0000:1b:00.0", nvml))).gpus.at(0);
  EXPECT_EQ(found.uuid, "GPU-5");
  EXPECT_EQ(found.name, "NVIDIA H100");
  const auto both = read(package("0", "0xf", gpu("0000:1b:00.0", info(kUuidInfo, "GPU-6") + nvml))).gpus.at(0);
  EXPECT_EQ(both.uuid, "GPU-6");
}

TEST(TopologyXml, InfosOfOthersAreNotTheGpus) {
  const auto nic =
      cat({"<object type=\"PCIDev\" pci_busid=\"0000:02:00.0\" pci_type=\"0200 [15b3:1021] [15b3:0] 00\">",
           info(kDeviceInfo, "not ours"), "<object type=\"OSDev\">", info(kUuidInfo, "!"), "</object></object>"});
  EXPECT_EQ(read(package("0", "0xf", nic + gpu("0000:1b:00.0"))).gpus.at(0).device, "");
  const auto below = cat({"<object type=\"Misc\">", info(kUuidInfo, "!"), "</object>"});
  EXPECT_EQ(read(package("0", "0xf", gpu("0000:1b:00.0", below))).gpus.at(0).uuid, "");
}

TEST(TopologyXml, KnowsOtherVendorsAndNoConsoles) {
  const auto topology =
      read(package("0", "0xf",
                   gpu("0000:01:00.0", "", "0380 [1002:7408]") + gpu("0000:02:00.0", "", "0380 [8086:0bd5]") +
                       gpu("0000:03:00.0", "", "0300 [8086:4680]") + gpu("0000:04:00.0", "", "0300 [1a03:2000]")));
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[0].vendor, GpuVendor::kAmd);
  EXPECT_EQ(topology.gpus[1].vendor, GpuVendor::kIntel);
}

TEST(TopologyXml, NumbersThatAreNotThereAreCounted) {
  const auto topology = read("<object type=\"Package\" cpuset=\"0x3\"/><object type=\"Package\" cpuset=\"0xc\"/>");
  EXPECT_EQ(topology.packages.at(1).number, 1U);
}

TEST(TopologyXml, RefusesWhatIsNotHwlocs) {
  EXPECT_EQ(refusal(""), "the topology cannot be read: line 1: there is no element");
  EXPECT_EQ(refusal("<svg/>"),
            "the topology cannot be read: line 1: the outermost element is not <topology>, as hwloc writes it");
  EXPECT_EQ(refusal("<topology/>"),
            "the topology cannot be read: line 1: it is not version 2 of hwloc's format; write it again with hwloc 2");
  EXPECT_EQ(refusal("<topology version=\"3.0\"/>"), refusal("<topology/>"));
  EXPECT_EQ(refusal("<topology version=\"2.0\"/>"), "the topology cannot be read: it tells of no machine with CPUs");
  const auto nested = refusal(topology_of("<object type=\"Machine\" cpuset=\"0x1\"/>"));
  EXPECT_EQ(nested, "the topology cannot be read: line 6: there is a machine inside another object");
}

TEST(TopologyXml, RefusesValuesThatAreWrong) {
  const auto end = [](std::string_view objects) { return refusal(topology_of(objects)).substr(28); };
  EXPECT_EQ(end(package("0", "0xf...f")), " line 6: the CPU mask \"0xf...f\" has no end");
  EXPECT_EQ(end(package("x", "0xf")), " line 6: os_index \"x\" is not a number");
  EXPECT_EQ(end(gpu("1b:00.0")), " line 6: pci_busid \"1b:00.0\" is not a PCI address");
  EXPECT_EQ(end(gpu("0000:1b:00.0", info(kDeviceInfo, "/etc/passwd"))),
            " line 6: BootstrapDevice \"/etc/passwd\" is not a path like /dev/nvidia0");
  EXPECT_NE(end(gpu("0000:1b:00.0", info(kDeviceInfo, "/dev/../x"))).find("is not a path"), std::string::npos);
  EXPECT_EQ(end(gpu("0000:1b:00.0", info(kUuidInfo, "GPU-1,GPU-2"))),
            " line 6: BootstrapUUID \"GPU-1,GPU-2\" is not a UUID");
  EXPECT_NE(end(gpu("0000:1b:00.0", "", "302 [10de:2330]")).find("is not as hwloc writes it"), std::string::npos);
}

TEST(TopologyXml, IsBounded) {
  std::string many;
  for (std::size_t i = 0; i <= kMaxGpus; ++i) many += gpu(cat({std::to_string(i), ":00:00.0"}));
  EXPECT_NE(refusal(topology_of(many)).find("there are more than 256 GPUs"), std::string::npos);
  // Each would cost the parsing of its mask.
  std::string nodes;
  for (int i = 0; i < 5000; ++i) nodes += "<object type=\"NUMANode\"/>";
  EXPECT_NE(refusal(topology_of(nodes)).find("there are more than 4096 objects of this type"), std::string::npos);
  EXPECT_EQ(refusal(std::string(kMaxTopologyText + 1, ' ')), "the topology is larger than 16 MiB");
}

// Each part of a text alone: an error, and never a crash or a topology.
TEST(TopologyXml, RefusesATextThatWasCutShort) {
  const auto whole = topology_of(package("0", "0xf", gpu("0000:1b:00.0", info(kUuidInfo, "GPU-1"))));
  const auto end = whole.rfind('>');
  for (std::size_t size = 0; size < end; ++size) {
    EXPECT_FALSE(parse_topology_xml(std::string_view(whole).substr(0, size))) << size;
  }
  EXPECT_TRUE(parse_topology_xml(whole));
}

}  // namespace
}  // namespace bootstrap
