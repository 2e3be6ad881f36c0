// The picture of a node as 80 columns of ASCII, which srun --label and logs leave as they are.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/util/ranges.h"
#include "core/util/text.h"
#include "tools/explain_gpus/node_picture_model.h"

namespace bootstrap {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kInner = kWidth - 5;  // between "|  " and " |"
constexpr std::size_t kMaxBoxes = 16;
constexpr std::size_t kMaxGpuRows = 64;  // of all boxes
constexpr std::size_t kMaxRanksOfGpu = 4;
constexpr std::size_t kMaxRankRows = 16;  // of ranks of a NUMA node that have no GPU, and of what each rank can use
constexpr std::size_t kLongCpus = 32;     // "0,2,4,6,...,126 (64 CPUs)" says as much as 64 numbers

void pad_to(std::string& line, std::size_t column) {
  if (line.size() < column) line.append(column - line.size(), ' ');
}

// Draws into the frame whose top and bottom are rules.
class Drawing {
 public:
  explicit Drawing(const NodePicture& picture);
  std::string text() &&;

 private:
  void choose_widths();
  void sentence(std::string_view words, std::size_t indent = 0);
  void rule(std::string_view left = "", std::string_view right = "");
  void line(std::string text);
  void box(const PictureBox& box);
  void roaming();
  void visibility();
  void gpu_row(std::uint32_t gpu, std::size_t indent);
  void rank_rows(const PictureGroup& group, const std::vector<std::uint32_t>& gpus_of_box, std::size_t indent);
  void rank_row(std::string row, std::uint32_t task, const std::string& where);
  void remaining_ranks(const std::vector<std::uint32_t>& tasks, std::size_t shown, std::size_t column);
  std::vector<Rank> ranks_of(const std::vector<std::uint32_t>& tasks) const;
  std::string elsewhere_text(const std::vector<std::uint32_t>& tasks) const;
  std::string gpu_label(std::uint32_t gpu) const;

  const NodePicture& picture_;
  const PictureModel model_;
  std::size_t rows_per_group_ = kMaxGpuRows;
  std::size_t index_width_ = 0;
  std::size_t pci_width_ = 0;
  std::size_t device_width_ = 0;
  std::size_t model_limit_ = 0;
  std::size_t model_width_ = 0;
  std::string out_;
};

std::string rank_name(const PictureTask& task) { return cat({"rank ", std::to_string(task.rank)}); }

std::string rank_and_local(const PictureTask& task) {
  return cat({rank_name(task), " (local ", std::to_string(task.local_rank), ")"});
}

Drawing::Drawing(const NodePicture& picture) : picture_(picture), model_(make_picture_model(picture)) {
  std::size_t groups = 0;
  for (const auto& box : model_.boxes) groups += box.groups.size();
  rows_per_group_ = std::max<std::size_t>(kMaxGpuRows / std::max<std::size_t>(groups, 1), 2);
  choose_widths();
}

// The model is cut, down to "A100", where the rank and its cores stay on the line by that.
void Drawing::choose_widths() {
  const auto& gpus = picture_.topology.gpus;
  index_width_ = std::to_string(gpus.size() - (gpus.empty() ? 0 : 1)).size();
  std::size_t rank_width = std::string_view("not of this step").size();
  for (std::uint32_t index = 0; index < gpus.size(); ++index) {
    pci_width_ = std::max(pci_width_, short_pci(model_, gpus[index]).size());
    if (model_.shows_devices) device_width_ = std::max(device_width_, short_device(gpus[index]).size());
    const auto& owners = model_.owners[index];
    for (std::size_t owner = 0; owner < std::min(owners.size(), kMaxRanksOfGpu); ++owner) {
      const auto& task = picture_.tasks[owners[owner]];
      const auto where = where_text(task, binding_of(task, gpus[index], picture_.topology), kLongCpus);
      rank_width = std::max(rank_width, rank_and_local(task).size() + 2 + where.size());
    }
  }
  const auto others = 2 + 4 + index_width_ + 2 + pci_width_ + (device_width_ > 0 ? 2 + device_width_ : 0) + 4;
  const auto left = kInner - std::min(kInner, others + rank_width);
  model_limit_ = left >= 6 ? std::min<std::size_t>(left, 18) : 12;
  for (const auto& gpu : gpus) model_width_ = std::max(model_width_, short_model(gpu.name, model_limit_).size());
}

void Drawing::sentence(std::string_view words, std::size_t indent) {
  for (const auto& part : wrapped(words, kWidth - indent)) out_ += cat({std::string(indent, ' '), part, "\n"});
}

void Drawing::rule(std::string_view left, std::string_view right) {
  std::string text = "+-";
  if (!left.empty()) text += cat({" ", left, " "});
  const auto end = right.empty() ? std::string("-+") : cat({" ", right, " -+"});
  text.append(kWidth - std::min(kWidth, text.size() + end.size()), '-');
  out_ += cat({text, end, "\n"});
}

void Drawing::line(std::string text) {
  pad_to(text, kInner);
  out_ += cat({"|  ", text, " |\n"});
}

std::string Drawing::gpu_label(std::uint32_t gpu) const {
  const auto& facts = picture_.topology.gpus[gpu];
  auto label = cat({"GPU ", std::to_string(gpu)});
  auto end = 4 + index_width_;
  const auto add = [&](const std::string& cell, std::size_t width) {
    if (width == 0) return;
    pad_to(label, end + 2);
    label += cell;
    end += 2 + width;
  };
  add(short_pci(model_, facts), pci_width_);
  if (model_.shows_devices) add(short_device(facts), device_width_);
  add(short_model(facts.name, model_limit_), model_width_);
  pad_to(label, end + 2);
  return label;
}

// `row` ends where the rank is to stand. What does not fit beside the rank goes below it.
void Drawing::rank_row(std::string row, std::uint32_t task, const std::string& where) {
  const auto column = row.size();
  const auto& facts = picture_.tasks[task];
  const auto name = rank_and_local(facts);
  if (row.size() + name.size() > kInner) {
    line(std::move(row));
    row.assign(std::min(column, kInner - name.size()), ' ');
  }
  row += name;
  if (row.size() + 2 + where.size() > kInner) {
    line(std::move(row));
    row.assign(std::min(column + 2, kInner - where.size()), ' ');
  } else {
    row += "  ";
  }
  line(row + where);
}

std::vector<Rank> Drawing::ranks_of(const std::vector<std::uint32_t>& tasks) const {
  std::vector<Rank> ranks;
  ranks.reserve(tasks.size());
  for (const auto task : tasks) ranks.push_back(picture_.tasks[task].rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Drawing::remaining_ranks(const std::vector<std::uint32_t>& tasks, std::size_t shown, std::size_t column) {
  if (shown >= tasks.size()) return;
  const auto ranks = ranks_of({tasks.begin() + static_cast<std::ptrdiff_t>(shown), tasks.end()});
  auto row =
      cat({std::string(std::min<std::size_t>(column, 40), ' '), "... and ", plural(ranks.size(), "more rank"), ": "});
  row += ellipsized(write_ranges(ranks), kInner - row.size());
  line(std::move(row));
}

void Drawing::gpu_row(std::uint32_t gpu, std::size_t indent) {
  auto row = std::string(indent, ' ') + gpu_label(gpu);
  const auto column = row.size();
  const auto& owners = model_.owners[gpu];
  if (owners.empty()) {
    const auto& given = model_.step_gpus;
    const bool of_step = std::binary_search(given.begin(), given.end(), gpu);
    const bool has_step = !picture_.tasks.empty() || !given.empty();
    line(has_step ? row + (of_step ? model_.free_word : "not of this step") : row);
    return;
  }
  const auto shown = owners.size() <= kMaxRanksOfGpu ? owners.size() : kMaxRanksOfGpu - 1;
  for (std::size_t owner = 0; owner < shown; ++owner) {
    const auto& task = picture_.tasks[owners[owner]];
    const auto binding = binding_of(task, picture_.topology.gpus[gpu], picture_.topology);
    rank_row(row, owners[owner], where_text(task, binding, kLongCpus));
    row.assign(column, ' ');
  }
  remaining_ranks(owners, shown, column);
}

// Ranks that do not stand beside a GPU of this box: they have none, or one elsewhere.
void Drawing::rank_rows(const PictureGroup& group, const std::vector<std::uint32_t>& gpus_of_box, std::size_t indent) {
  std::vector<std::uint32_t> without;
  std::vector<std::uint32_t> elsewhere;
  for (const auto task : group.tasks) {
    const auto& own = model_.own[task];
    const auto is_here = [&](auto gpu) { return std::binary_search(gpus_of_box.begin(), gpus_of_box.end(), gpu); };
    if (own.empty()) {
      without.push_back(task);
    } else if (std::none_of(own.begin(), own.end(), is_here)) {
      elsewhere.push_back(task);
    }
  }
  const auto shown = without.size() <= kMaxRankRows ? without.size() : kMaxRankRows - 1;
  for (std::size_t index = 0; index < shown; ++index) {
    const auto& task = picture_.tasks[without[index]];
    const auto where = where_text(task, binding_of(task, {}, picture_.topology), kLongCpus);
    const auto its_gpu = model_.step_gpus.empty() ? ""
                         : task.knows_gpus        ? ", no GPU of its own"
                                                  : ", its GPU is not known";
    rank_row(std::string(indent, ' '), without[index], where + its_gpu);
  }
  remaining_ranks(without, shown, indent);
  if (!elsewhere.empty()) line(std::string(indent, ' ') + elsewhere_text(elsewhere));
}

// One line for all of them: each stands beside its GPU, too.
std::string Drawing::elsewhere_text(const std::vector<std::uint32_t>& tasks) const {
  const auto& own = model_.own[tasks[0]];
  const bool is_known = !picture_.topology.gpus[own[0]].near.empty();
  if (tasks.size() > 1) {
    return cat({"ranks ", ellipsized(write_ranges(ranks_of(tasks)), 30), " run here",
                is_known ? "; their GPUs are elsewhere" : ""});
  }
  if (!is_known) return cat({rank_name(picture_.tasks[tasks[0]]), " runs here"});
  return cat({rank_name(picture_.tasks[tasks[0]]), " runs here; its ", own.size() == 1 ? "GPU " : "GPUs ",
              ellipsized(write_ranges(own), 20), own.size() == 1 ? " is" : " are", " elsewhere"});
}

void Drawing::box(const PictureBox& box) {
  const auto title = cat({box.title, box.subtitle.empty() ? "" : ", ", box.subtitle});
  const auto room = std::min<std::size_t>(kWidth - 14 - std::min<std::size_t>(title.size(), 60), 28);
  rule(title, box.cpus.empty() ? "" : cat({"CPUs ", cpu_text(box.cpus, room)}));
  std::vector<std::uint32_t> gpus;
  for (const auto& group : box.groups) gpus.insert(gpus.end(), group.gpus.begin(), group.gpus.end());
  std::sort(gpus.begin(), gpus.end());
  const auto shown_groups = std::min(box.groups.size(), kMaxBoxes);
  for (std::size_t index = 0; index < shown_groups; ++index) {
    const auto& group = box.groups[index];
    const std::size_t indent = group.title.empty() ? 0 : 2;
    if (indent > 0) line(cat({group.title, "  CPUs ", cpu_text(group.cpus, 40)}));
    const auto shown = std::min(group.gpus.size(), rows_per_group_);
    for (std::size_t gpu = 0; gpu < shown; ++gpu) gpu_row(group.gpus[gpu], indent);
    if (shown < group.gpus.size()) {
      const std::vector<std::uint32_t> others(group.gpus.begin() + static_cast<std::ptrdiff_t>(shown),
                                              group.gpus.end());
      const auto start = cat({std::string(indent, ' '), "... and ", plural(others.size(), "more GPU"), ": "});
      line(start + ellipsized(write_ranges(others), kInner - start.size()));
    }
    rank_rows(group, gpus, indent);
  }
  if (shown_groups < box.groups.size()) {
    line(cat({"... and ", plural(box.groups.size() - shown_groups, "more NUMA node"), " with GPUs or ranks"}));
  }
  if (!box.rest.empty()) line(ellipsized(box.rest, kInner));
}

void Drawing::roaming() {
  PictureGroup group;
  for (const auto task : model_.roaming) {
    if (model_.own[task].empty()) group.tasks.push_back(task);  // others stand beside their GPU
  }
  if (group.tasks.empty()) return;
  rule(model_.roaming_title);
  rank_rows(group, {}, 0);
}

void Drawing::visibility() {
  if (model_.visibility == Visibility::kNothing) return;
  out_ += "\n";
  sentence(model_.visibility_sentence);
  if (model_.visibility != Visibility::kMixed) return;  // the sentence says it all
  out_ += "\n";
  const auto all = picture_.tasks.size();
  const auto shown = all <= kMaxRankRows ? all : kMaxRankRows - 1;
  for (std::size_t task = 0; task < shown; ++task) {
    const auto* const none = picture_.tasks[task].knows_gpus ? "none" : "not known";
    const auto numbers = [none](const auto& gpus) { return gpus.empty() ? none : write_ranges(gpus); };
    const auto row =
        cat({"  ", rank_name(picture_.tasks[task]), ": own ", ellipsized(numbers(model_.own[task]), 24), "; can use "});
    out_ += cat({row, ellipsized(numbers(model_.sees[task]), kWidth - row.size()), "\n"});
  }
  if (shown < all) out_ += cat({"  ... and ", plural(all - shown, "more rank"), "\n"});
}

std::string Drawing::text() && {
  sentence(cat({model_.title, ": ", model_.summary}));
  out_ += "\n";
  const auto start = out_.size();
  const auto shown = std::min(model_.boxes.size(), kMaxBoxes);
  for (std::size_t index = 0; index < shown; ++index) box(model_.boxes[index]);
  if (shown < model_.boxes.size()) {
    rule();
    line(cat({"... and ", std::to_string(model_.boxes.size() - shown), " more"}));
  }
  roaming();
  if (out_.size() > start) {
    rule();
  } else {
    out_.pop_back();  // no picture, no empty line
  }
  visibility();
  if (!model_.device_remark.empty() || !model_.remarks.empty()) out_ += "\n";
  if (!model_.device_remark.empty()) sentence(model_.device_remark);
  for (const auto& remark : model_.remarks) sentence(remark);
  return std::move(out_);
}

}  // namespace

std::string picture_text(const NodePicture& picture) { return Drawing(picture).text(); }

}  // namespace bootstrap
