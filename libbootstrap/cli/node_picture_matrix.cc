// Which rank can use which GPU, as a table of text.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/node_picture_model.h"
#include "core/ranges.h"
#include "core/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kWidth = 80;

void pad_to(std::string& line, std::size_t column) {
  if (line.size() < column) line.append(column - line.size(), ' ');
}

std::string rank_label(const PictureTask& task) { return cat({"  rank ", std::to_string(task.rank)}); }

std::string as_lists(const NodePicture& picture, const PictureModel& model, std::size_t rows) {
  std::string out;
  for (std::size_t task = 0; task < rows; ++task) {
    const auto none = picture.tasks[task].knows_gpus ? "none" : "not known";
    const auto numbers = [&](const auto& gpus) { return gpus.empty() ? none : write_ranges(gpus); };
    auto row = cat({rank_label(picture.tasks[task]), ": own ", ellipsized(numbers(model.own[task]), 24), "; can use "});
    out += cat({row, ellipsized(numbers(model.sees[task]), kWidth - row.size()), "\n"});
  }
  return out;
}

std::string as_table(const NodePicture& picture, const PictureModel& model, std::size_t rows) {
  std::size_t start = 0;
  for (std::size_t task = 0; task < rows; ++task) start = std::max(start, rank_label(picture.tasks[task]).size() + 2);
  const auto width = std::clamp<std::size_t>((kWidth - start) / model.columns.size(), 3, 5);
  std::string out = "  GPU";
  for (std::size_t column = 0; column < model.columns.size(); ++column) {
    pad_to(out, start + column * width);
    out += std::to_string(model.columns[column]);
  }
  out += "\n";
  for (std::size_t task = 0; task < rows; ++task) {
    auto row = rank_label(picture.tasks[task]);
    for (std::size_t column = 0; column < model.columns.size(); ++column) {
      pad_to(row, start + column * width);
      row += sight_of(picture, model, task, model.columns[column]);
    }
    out += row + "\n";
  }
  return out;
}

}  // namespace

std::string_view sight_of(const NodePicture& picture, const PictureModel& model, std::size_t task, std::uint32_t gpu) {
  const auto has = [&](const auto& gpus) { return std::binary_search(gpus.begin(), gpus.end(), gpu); };
  return has(model.own[task]) ? "own" : has(model.sees[task]) ? "yes" : picture.tasks[task].knows_gpus ? "-" : "?";
}

std::string visibility_matrix(const NodePicture& picture, const PictureModel& model) {
  const bool fits = model.columns.size() <= kMaxMatrix;
  // A sentence says it all, unless there is a table to look at.
  if (model.visibility == Visibility::kNothing || model.visibility == Visibility::kAll) return "";
  if (model.visibility == Visibility::kOwn && !fits) return "";
  const auto all = picture.tasks.size();
  const auto rows = all <= kMaxMatrix ? all : kMaxMatrix - 1;
  auto out = fits ? as_table(picture, model, rows) : as_lists(picture, model, rows);
  if (rows < all) out += cat({"  ... and ", plural(all - rows, "more rank"), "\n"});
  return out;
}

}  // namespace bootstrap
