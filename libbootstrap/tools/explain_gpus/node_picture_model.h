// What stands in which box of the picture of a node, and the words for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "tools/explain_gpus/node_picture.h"

namespace bootstrap {

// GPUs and tasks that stand together: those of a NUMA node, or those of a package of which no more is known.
struct PictureGroup {
  std::string title;  // "NUMA node 1"; empty when the box says it
  CpuSet cpus;
  std::vector<std::uint32_t> gpus;   // indices into Topology::gpus
  std::vector<std::uint32_t> tasks;  // whose cores are all in here, indices into NodePicture::tasks

  bool empty() const { return gpus.empty() && tasks.empty(); }
};

struct PictureBox {
  std::string title;     // "Package 0"
  std::string subtitle;  // "NUMA node 0" where the package has no other
  CpuSet cpus;
  std::vector<PictureGroup> groups;  // none of them empty
  std::string rest;                  // "NUMA nodes 0,2: no GPU", or empty
};

enum class Binding : std::uint8_t { kNotKnown, kEverywhere, kNear, kPartlyFar, kFar };

enum class Visibility : std::uint8_t { kNothing, kAll, kOwn, kMixed };

struct PictureModel {
  std::string title;    // "Node dgx001, step 12.0"
  std::string summary;  // "8 ranks; all 8 GPUs are given to the step"
  std::vector<PictureBox> boxes;
  std::vector<std::uint32_t> roaming;  // tasks whose cores are in several packages, or not known
  std::string roaming_title;

  std::vector<std::vector<std::uint32_t>> own;     // by task: its GPUs, ascending
  std::vector<std::vector<std::uint32_t>> sees;    // by task: GPUs that it can use, ascending
  std::vector<std::vector<std::uint32_t>> owners;  // by GPU: its tasks
  std::vector<std::uint32_t> step_gpus;            // ascending, with those that belong to a task
  std::vector<std::uint32_t> usable;               // the step's GPUs and all that any task can use

  Visibility visibility = Visibility::kNothing;
  std::string visibility_sentence;   // empty when there is nothing to say
  std::vector<std::string> remarks;  // what the words in the picture mean, and the notes of the caller
  std::string device_remark;         // one sentence in place of all device nodes, or empty
  std::string free_word = "free";    // of a GPU of the step that belongs to no rank
  bool short_pci = true;             // all GPUs are in PCI domain 0, which is not shown then
  bool shows_devices = false;        // device nodes are not those that one would expect
};

// Indices that are out of range in `picture` are left out.
PictureModel make_picture_model(const NodePicture& picture);

Binding binding_of(const PictureTask& task, const Gpu& gpu, const Topology& topology);

// Printable ASCII of at most `width` characters: other bytes as \xNN, "..." where it is cut.
std::string plain(std::string_view text, std::size_t width);
std::string ellipsized(std::string text, std::size_t width);  // of text that is plain already
// As plain(), without the maker's name, and cut between words where that leaves something.
std::string short_model(std::string_view name, std::size_t width);
std::string short_pci(const PictureModel& model, const Gpu& gpu);
std::string short_device(const Gpu& gpu);  // "nvidia0"

// "0-55,112-167", or "0,2,4,...,126 (64 CPUs)" where that is too long.
std::string cpu_text(const CpuSet& cpus, std::size_t width);
// "cores 0-13", "far: cores 0-13", "may run on all cores", "cores not known".
std::string where_text(const PictureTask& task, Binding binding, std::size_t width);
std::string plural(std::size_t count, std::string_view noun);  // "1 rank", "2 ranks"

// Broken between words, and within words that are longer than `width`.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace bootstrap
