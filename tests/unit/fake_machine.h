// The files of /sys and /proc that describe a node's GPUs, in a folder that is removed when the test ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/util/text.h"
#include "known_node.h"

namespace bootstrap {

class FakeMachine {
 public:
  FakeMachine() {
    // In memory: a node has thousands of small files.
    const std::filesystem::path memory = "/dev/shm";
    root_ = ((exists(memory) ? memory : std::filesystem::temp_directory_path()) / "machine-XXXXXX").string();
    if (::mkdtemp(root_.data()) == nullptr) std::abort();
  }
  // Writes the files that Linux has on this node.
  explicit FakeMachine(const KnownNode& node) : FakeMachine() {
    add_cpus(node);
    if (!node.board.empty()) write("/sys/class/dmi/id/board_name", node.board + "\n");
    for (const auto& gpu : node.gpus) add_gpu(gpu, node);
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

  void add_cpus(const KnownNode& node) const {
    const std::string folder = "/sys/devices/system/cpu/";
    write(folder + "online", node.cpus.to_list() + "\n");
    for (const auto& [number, cpus] : node.packages) {
      for (const auto cpu : cpus.members()) {
        write(cat({folder, "cpu", std::to_string(cpu), "/topology/package_cpus_list"}), cpus.to_list() + "\n");
      }
    }
    for (const auto& l3 : node.l3) {
      for (const auto cpu : l3.members()) {
        write(cat({folder, "cpu", std::to_string(cpu), "/cache/index3/shared_cpu_list"}), l3.to_list() + "\n");
      }
    }
    for (const auto& [number, cpus] : node.numa_nodes) {
      write(cat({"/sys/devices/system/node/node", std::to_string(number), "/cpulist"}), cpus.to_list() + "\n");
    }
  }

  void add_gpu(const Gpu& gpu, const KnownNode& node) const {
    const auto is_nvidia = gpu.vendor == GpuVendor::kNvidia;
    add_pci_device(gpu.pci,
                   is_nvidia                       ? "0x10de"
                   : gpu.vendor == GpuVendor::kAmd ? "0x1002"
                                                   : "0x8086",
                   is_nvidia ? "0x030200" : "0x038000", gpu.numa ? std::to_string(*gpu.numa) : "-1");
    const auto local = gpu.near.empty() ? node.cpus : gpu.near;  // for hwloc
    write("/sys/bus/pci/devices/" + gpu.pci + "/local_cpulist", local.to_list() + "\n");
    if (is_nvidia) {
      add_information(gpu);
    } else {
      link("/sys/class/drm/" + gpu.device.substr(9) + "/device", "../../../" + gpu.pci);
    }
  }

  void add_pci_device(const std::string& pci, std::string_view vendor, std::string_view device_class,
                      std::string_view numa_node) const {
    const auto folder = "/sys/bus/pci/devices/" + pci + "/";
    write(folder + "vendor", cat({vendor, "\n"}));
    write(folder + "class", cat({device_class, "\n"}));
    write(folder + "numa_node", cat({numa_node, "\n"}));
  }

  // NVIDIA's driver writes a tab and spaces in these places.
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
  std::string root_;
};

}  // namespace bootstrap
