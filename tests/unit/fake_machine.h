// The files of /sys and /proc that describe a machine's topology, in a folder that is removed when the test ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/hardware/topology.h"
#include "core/util/text.h"

namespace bootstrap {

class FakeMachine {
 public:
  FakeMachine() {
    root_ = (std::filesystem::temp_directory_path() / "machine-XXXXXX").string();
    if (::mkdtemp(root_.data()) == nullptr) std::abort();
  }
  // What Linux shows of a machine with this topology.
  explicit FakeMachine(const Topology& topology) : FakeMachine() {
    add_cpus(topology);
    for (const auto& node : topology.numa_nodes) add_numa_node(node);
    for (const auto& gpu : topology.gpus) add_gpu(gpu, topology);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  ~FakeMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::string& root() const { return root_; }

  void write(const std::string& path, std::string_view text) const {
    std::ofstream file(root_ + path);
    if (!file) {
      std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
      file.open(root_ + path);
    }
    file << text;
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::filesystem::create_symlink(target, root_ + path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_ + path); }

  void add_cpus(const Topology& topology) const {
    write(kCpus + std::string("online"), topology.cpus.to_list() + "\n");
    std::string nodes;
    for (const auto& node : topology.numa_nodes) nodes += (nodes.empty() ? "" : ",") + std::to_string(node.number);
    write("/sys/devices/system/node/online", nodes + "\n");
    write("/sys/devices/system/node/has_cpu", nodes + "\n");
    for (const auto& package : topology.packages) {
      for (const auto cpu : package.cpus.members()) {
        const auto folder = kCpus + ("cpu" + std::to_string(cpu)) + "/topology/";
        write(folder + "physical_package_id", std::to_string(package.number) + "\n");
        write(folder + "package_cpus_list", package.cpus.to_list() + "\n");
      }
    }
  }

  void add_numa_node(const NumaNode& node) const {
    const auto folder = "/sys/devices/system/node/node" + std::to_string(node.number);
    write(folder + "/cpulist", node.cpus.to_list() + "\n");
  }

  void add_gpu(const Gpu& gpu, const Topology& topology) const {
    constexpr const char* kIds[][2] = {{"0x10de", "0x030200"}, {"0x1002", "0x038000"}, {"0x8086", "0x038000"}};
    const auto& ids = kIds[static_cast<int>(gpu.vendor)];
    add_pci_device(gpu.pci, ids[0], ids[1], gpu.numa ? std::to_string(topology.numa_nodes[*gpu.numa].number) : "-1",
                   gpu.near.empty() ? topology.cpus : gpu.near);
    if (gpu.vendor == GpuVendor::kNvidia) {
      add_information(gpu);
    } else if (!gpu.device.empty()) {
      link("/sys/class/drm/" + gpu.device.substr(9) + "/device", "../../../" + gpu.pci);
    }
  }

  void add_pci_device(const std::string& pci, std::string_view vendor, std::string_view device_class,
                      std::string_view numa_node, const CpuSet& local) const {
    const auto folder = "/sys/bus/pci/devices/" + pci + "/";
    write(folder + "vendor", cat({vendor, "\n"}));
    write(folder + "class", cat({device_class, "\n"}));
    write(folder + "numa_node", cat({numa_node, "\n"}));
    write(folder + "local_cpulist", local.to_list() + "\n");
  }

  // As the driver of NVIDIA writes it, with a tab and spaces in odd places.
  void add_information(const Gpu& gpu, std::string_view more = "") const {
    const auto uuid =
        gpu.uuid.empty() ? "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?" : gpu.uuid;
    auto text =
        cat({"Model: \t\t ", gpu.name, "\nIRQ:   \t\t 16\nGPU UUID: \t ", uuid, "\nVideo BIOS: \t ??.??.??.??.??\n",
             "Bus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t ", gpu.pci, "\n"});
    if (!gpu.device.empty()) text += "Device Minor: \t " + gpu.device.substr(11) + "\n";
    write("/proc/driver/nvidia/gpus/" + gpu.pci + "/information", cat({text, more}));
  }

 private:
  static constexpr const char* kCpus = "/sys/devices/system/cpu/";

  std::string root_;
};

}  // namespace bootstrap
