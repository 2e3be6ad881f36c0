// What stands in which box of the picture of a node, and who can use what.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_picture_model.h"

#include <algorithm>

#include "core/util/ranges.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::vector<std::uint32_t> valid_ascending(const std::vector<std::uint32_t>& indices, std::size_t size) {
  std::vector<std::uint32_t> valid;
  for (const auto index : indices) {
    if (index < size) valid.push_back(index);
  }
  std::sort(valid.begin(), valid.end());
  valid.erase(std::unique(valid.begin(), valid.end()), valid.end());
  return valid;
}

void append(std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Groups before they are put into boxes.
struct Places {
  std::vector<PictureGroup> numa;     // by NUMA node
  std::vector<PictureGroup> package;  // by package: what belongs to it and to none of its NUMA nodes
  PictureGroup unknown;               // GPUs
};

void place_gpus(Places& places, const Topology& topology) {
  for (std::uint32_t index = 0; index < topology.gpus.size(); ++index) {
    const auto& gpu = topology.gpus[index];
    if (gpu.numa && *gpu.numa < places.numa.size()) {
      places.numa[*gpu.numa].gpus.push_back(index);
    } else if (gpu.package && *gpu.package < places.package.size()) {
      places.package[*gpu.package].gpus.push_back(index);
    } else {
      places.unknown.gpus.push_back(index);
    }
  }
}

// Where all its cores are; false when they are in several packages or not known.
bool place_task(Places& places, std::uint32_t index, const PictureTask& task, const Topology& topology) {
  if (task.cpus.empty()) return false;
  for (std::size_t node = 0; node < topology.numa_nodes.size(); ++node) {
    if (task.cpus.is_within(topology.numa_nodes[node].cpus)) {
      places.numa[node].tasks.push_back(index);
      return true;
    }
  }
  for (std::size_t package = 0; package < topology.packages.size(); ++package) {
    if (task.cpus.is_within(topology.packages[package].cpus)) {
      places.package[package].tasks.push_back(index);
      return true;
    }
  }
  return false;
}

PictureBox package_box(std::uint32_t index, Places& places, const Topology& topology) {
  const auto& package = topology.packages[index];
  PictureBox box{cat({"Package ", std::to_string(package.number)}), "", package.cpus, {}, ""};
  std::vector<std::uint32_t> members;
  for (std::uint32_t node = 0; node < topology.numa_nodes.size(); ++node) {
    if (topology.numa_nodes[node].package == index) members.push_back(node);
  }
  auto& outside = places.package[index];
  if (members.size() == 1 && topology.numa_nodes[members[0]].cpus == package.cpus) {
    auto& node = places.numa[members[0]];
    box.subtitle = node.title;
    append(outside.gpus, node.gpus);
    append(outside.tasks, node.tasks);
    std::sort(outside.gpus.begin(), outside.gpus.end());
    members.clear();
  }
  if (!outside.empty()) box.groups.push_back(outside);
  std::vector<std::uint32_t> bare;
  for (const auto node : members) {
    if (places.numa[node].empty()) {
      bare.push_back(topology.numa_nodes[node].number);
    } else {
      box.groups.push_back(places.numa[node]);
    }
  }
  std::sort(bare.begin(), bare.end());
  if (!bare.empty()) box.rest = cat({bare.size() == 1 ? "NUMA node " : "NUMA nodes ", write_ranges(bare), ": no GPU"});
  if (bare.empty() && box.groups.empty()) box.rest = "no GPU";
  return box;
}

void make_boxes(PictureModel& model, const NodePicture& picture) {
  const auto& topology = picture.topology;
  Places places;
  const bool has_places = !topology.packages.empty() || !topology.numa_nodes.empty();
  model.roaming_title = has_places ? "Not bound to one package" : "Ranks";
  for (const auto& node : topology.numa_nodes) {
    places.numa.push_back({cat({"NUMA node ", std::to_string(node.number)}), node.cpus, {}, {}});
  }
  places.package.resize(topology.packages.size());
  place_gpus(places, topology);
  for (std::uint32_t index = 0; index < picture.tasks.size(); ++index) {
    if (!place_task(places, index, picture.tasks[index], topology)) model.roaming.push_back(index);
  }
  for (std::uint32_t index = 0; index < topology.packages.size(); ++index) {
    model.boxes.push_back(package_box(index, places, topology));
  }
  for (std::size_t index = 0; index < topology.numa_nodes.size(); ++index) {
    const auto& node = topology.numa_nodes[index];
    if (node.package && *node.package < topology.packages.size()) continue;
    auto group = places.numa[index];
    PictureBox box{group.title, "", node.cpus, {}, group.empty() ? "no GPU" : ""};
    group.title.clear();
    if (!group.empty()) box.groups.push_back(group);
    model.boxes.push_back(box);
  }
  if (!places.unknown.empty()) {
    model.boxes.push_back(
        {topology.gpus.size() == 1 ? "The place of this GPU is not known" : "GPUs whose place is not known",
         "",
         {},
         {places.unknown},
         ""});
  }
}

void find_owners(PictureModel& model, const NodePicture& picture) {
  const auto gpus = picture.topology.gpus.size();
  model.owners.resize(gpus);
  model.step_gpus = picture.step_gpus;
  for (std::uint32_t index = 0; index < picture.tasks.size(); ++index) {
    const auto& task = picture.tasks[index];
    model.own.push_back(valid_ascending(task.gpus, gpus));
    auto sees = task.sees;
    append(sees, task.gpus);
    model.sees.push_back(valid_ascending(sees, gpus));
    for (const auto gpu : model.own.back()) model.owners[gpu].push_back(index);
    append(model.step_gpus, model.own.back());
  }
  model.step_gpus = valid_ascending(model.step_gpus, gpus);
  model.usable = model.step_gpus;
  std::vector<bool> is_usable(gpus);  // not all lists joined: 1000 ranks may see 256 GPUs each
  for (const auto gpu : model.usable) is_usable[gpu] = true;
  for (const auto& seen : model.sees) {
    for (const auto gpu : seen) {
      if (!is_usable[gpu]) model.usable.push_back(gpu);
      is_usable[gpu] = true;
    }
  }
  std::sort(model.usable.begin(), model.usable.end());
}

void judge_visibility(PictureModel& model, const NodePicture& picture) {
  const auto is_silent = [](const auto& task) { return !task.knows_gpus; };
  const bool is_unsure = std::any_of(picture.tasks.begin(), picture.tasks.end(), is_silent);
  if (is_unsure) model.free_word = "rank not known";
  const auto tasks = model.sees.size();
  if (tasks == 0 || model.usable.empty()) return;
  const auto sees_all = [&](const auto& seen) { return seen == model.step_gpus; };
  bool own_only = true;
  bool several = false;
  for (std::size_t task = 0; task < tasks; ++task) {
    own_only = own_only && !model.own[task].empty() && model.own[task] == model.sees[task];
    several = several || model.own[task].size() > 1;
  }
  if (std::all_of(model.sees.begin(), model.sees.end(), sees_all)) {
    const auto count = model.step_gpus.size();
    model.visibility = Visibility::kAll;
    model.visibility_sentence = cat({tasks == 1 ? "The rank can use " : "Every rank can use ",
                                     count == 1   ? "the one GPU of the step"
                                     : count == 2 ? "both GPUs of the step"
                                                  : cat({"all ", std::to_string(count), " GPUs of the step"}),
                                     tasks > 1 && count > 1 ? " (peers are visible)." : "."});
  } else if (own_only) {
    model.visibility = Visibility::kOwn;
    model.visibility_sentence = cat({tasks == 1 ? "The rank can use only its own " : "Each rank can use only its own ",
                                     several ? "GPUs" : "GPU", " (peers are hidden)."});
  } else {
    model.visibility = Visibility::kMixed;
    model.visibility_sentence = is_unsure ? "Which GPUs some of the ranks can use is not known here."
                                          : "Not every rank can use every GPU of the step.";
  }
}

void describe(PictureModel& model, const NodePicture& picture) {
  model.title = picture.host.empty() ? "This node" : cat({"Node ", plain(picture.host, 40)});
  if (!picture.step.empty()) model.title += cat({", step ", plain(picture.step, 24)});
  const auto gpus = picture.topology.gpus.size();
  const auto of_step = model.step_gpus.size();
  const auto all = std::to_string(gpus);
  model.summary = picture.tasks.empty() ? "" : cat({plural(picture.tasks.size(), "rank"), "; "});
  if (gpus == 0) {
    model.summary += "no GPU in this node";
  } else if (picture.tasks.empty() && of_step == 0) {
    model.summary += plural(gpus, "GPU");
  } else if (of_step == gpus) {
    model.summary += gpus == 1   ? "the only GPU is given to the step"
                     : gpus == 2 ? "both GPUs are given to the step"
                                 : cat({"all ", all, " GPUs are given to the step"});
  } else if (of_step == 0) {
    model.summary +=
        gpus == 1 ? "the only GPU is not given to the step" : cat({"none of the ", all, " GPUs is given to the step"});
  } else {
    model.summary += cat({of_step == 1 ? "GPU " : "GPUs ", write_ranges(model.step_gpus), " of ", all,
                          of_step == 1 ? " is given to the step" : " are given to the step"});
  }
}

void judge_names(PictureModel& model, const std::vector<Gpu>& gpus) {
  std::size_t expected = 0;
  for (std::size_t index = 0; index < gpus.size(); ++index) {
    if (!gpus[index].device.empty()) model.shows_devices = true;
    if (gpus[index].device == cat({"/dev/nvidia", std::to_string(index)})) ++expected;
    model.short_pci = model.short_pci && gpus[index].pci.substr(0, 5) == "0000:";
  }
  if (gpus.empty() || expected < gpus.size()) return;
  model.shows_devices = false;  // one sentence says it for all of them
  model.device_remark = cat({"GPU 0 is the device node /dev/nvidia0", gpus.size() == 1 ? "" : ", GPU 1 /dev/nvidia1",
                             gpus.size() > 2 ? ", and so on." : "."});
}

void add_remarks(PictureModel& model, const NodePicture& picture) {
  const auto& gpus = picture.topology.gpus;
  bool far = false;
  bool partly = false;
  for (std::size_t index = 0; index < picture.tasks.size(); ++index) {
    for (const auto gpu : model.own[index]) {
      const auto binding = binding_of(picture.tasks[index], gpus[gpu], picture.topology);
      far = far || binding == Binding::kFar;
      partly = partly || binding == Binding::kPartlyFar;
    }
  }
  if (far) model.remarks.emplace_back("far: the cores of the rank are in another NUMA node or package than the GPU.");
  if (partly)
    model.remarks.emplace_back("partly far: some of its cores are in another NUMA node or package than the GPU.");
  judge_names(model, gpus);
  if (!picture.tasks.empty() && !model.usable.empty() &&
      (model.visibility != Visibility::kAll || model.usable.size() < gpus.size())) {
    model.remarks.emplace_back("GPUs are numbered as in the node; a program counts those it can use from 0.");
  }
  constexpr std::size_t kMaxNotes = 32;
  const auto shown = std::min(picture.notes.size(), kMaxNotes);
  for (std::size_t note = 0; note < shown; ++note) model.remarks.push_back(plain(picture.notes[note], 1000));
  if (shown < picture.notes.size()) {
    model.remarks.push_back(cat({"... and ", plural(picture.notes.size() - shown, "more note")}));
  }
}

}  // namespace

Binding binding_of(const PictureTask& task, const Gpu& gpu, const Topology& topology) {
  if (task.cpus.empty()) return Binding::kNotKnown;
  if (!topology.cpus.empty() && topology.cpus.is_within(task.cpus)) return Binding::kEverywhere;
  if (gpu.near.empty() || task.cpus.is_within(gpu.near)) return Binding::kNear;
  return (task.cpus & gpu.near).empty() ? Binding::kFar : Binding::kPartlyFar;
}

PictureModel make_picture_model(const NodePicture& picture) {
  PictureModel model;
  find_owners(model, picture);
  make_boxes(model, picture);
  judge_visibility(model, picture);
  describe(model, picture);
  add_remarks(model, picture);
  return model;
}

}  // namespace bootstrap
