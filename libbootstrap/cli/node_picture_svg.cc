// The picture of a node as an SVG file: packages side by side, NUMA nodes in them, then who can use what.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/node_picture_cards.h"
#include "cli/node_picture_model.h"
#include "cli/svg.h"
#include "core/text.h"

namespace bootstrap {
namespace {

constexpr int kMargin = 28;
constexpr int kPad = 14;
constexpr int kGap = 10;
constexpr int kRowGap = 8;
constexpr int kBoxGap = 16;
constexpr int kMaxCardWidth = 240;
constexpr int kWantedWidth = 900;  // of a row of packages: what a page shows without scaling
constexpr int kLeastWidth = 746;   // four chips side by side
constexpr int kLabel = 110;        // of a row of the matrix
constexpr int kCell = 40;          // of the matrix
constexpr int kCellHeight = 24;
constexpr std::size_t kMaxBoxes = 16;
constexpr std::size_t kMaxCards = 64;  // of all boxes
constexpr std::size_t kMaxChips = 16;  // of one group

constexpr TextStyle kHeading = {14, true, kInk, Anchor::kStart};
constexpr TextStyle kSmall = {11, false, kMuted, Anchor::kStart};
constexpr TextStyle kSmallEnd = {11, false, kMuted, Anchor::kEnd};
constexpr TextStyle kBody = {12, false, kInk, Anchor::kStart};
constexpr std::string_view kPaper = "#ffffff";
constexpr std::string_view kPackage = "#f4f6f9";

struct Block {
  std::string body;
  int height = 0;
};

class Painting {
 public:
  explicit Painting(const NodePicture& picture);
  std::string document() const;

 private:
  void choose_widths();
  void add(Block& to, const Block& block, int gap) const;
  Block grid(const std::vector<std::string>& cells, int cell_width, int cell_height, int columns) const;
  Block chips(const std::vector<std::uint32_t>& tasks, int cell_width, int columns) const;
  Block group(const PictureGroup& group) const;
  Block box(const PictureBox& box) const;
  Block boxes() const;
  Block roaming() const;
  Block visibility() const;
  Block matrix() const;
  std::string matrix_row(std::uint32_t task) const;
  Block legend() const;

  const NodePicture& picture_;
  const PictureModel model_;
  const PictureCards cards_;
  std::size_t cards_per_group_ = kMaxCards;
  int frame_ = 0;    // what the border of a NUMA node takes at each side
  int columns_ = 1;  // of cards in a box
  int per_row_ = 1;  // boxes
  int width_ = kLeastWidth;
  int box_width_ = kLeastWidth;
  int card_width_ = PictureCards::kNarrowest;
};

Painting::Painting(const NodePicture& picture)
    : picture_(picture), model_(make_picture_model(picture)), cards_(picture_, model_) {
  choose_widths();
}

void Painting::choose_widths() {
  std::size_t groups = 0;
  std::size_t most = 1;
  for (const auto& box : model_.boxes) {
    groups += box.groups.size();
    for (const auto& group : box.groups) {
      most = std::max({most, group.gpus.size(), std::min<std::size_t>(group.tasks.size(), 4)});
      if (!group.title.empty()) frame_ = kGap;
    }
  }
  cards_per_group_ = std::max<std::size_t>(kMaxCards / std::max<std::size_t>(groups, 1), 2);
  const auto boxes = static_cast<int>(std::min(model_.boxes.size(), kMaxBoxes));
  columns_ = static_cast<int>(std::min<std::size_t>(most, boxes < 2 || most > 8 ? 4 : 2));
  const auto inside = [&](int card) { return columns_ * (card + kGap) - kGap + 2 * (kPad + frame_); };
  const auto natural = inside(PictureCards::kNarrowest);
  per_row_ = std::clamp((kWantedWidth + kBoxGap) / (natural + kBoxGap), 1, std::max(boxes, 1));
  const auto rows = (boxes + per_row_ - 1) / per_row_;
  if (rows > 0) per_row_ = (boxes + rows - 1) / rows;  // 4 as 2 and 2, not as 3 and 1
  const auto matrix = kLabel + kCell * static_cast<int>(std::min(model_.columns.size(), kMaxMatrix));
  width_ = std::max({kLeastWidth, per_row_ * (natural + kBoxGap) - kBoxGap, matrix + 2 * kPad});
  box_width_ = (width_ - (per_row_ - 1) * kBoxGap) / per_row_;
  card_width_ = std::min((box_width_ - 2 * (kPad + frame_) + kGap) / columns_ - kGap, kMaxCardWidth);
}

void Painting::add(Block& to, const Block& block, int gap) const {
  if (block.height == 0) return;
  if (to.height > 0) to.height += gap;
  to.body += svg_at(0, to.height, block.body);
  to.height += block.height;
}

Block Painting::grid(const std::vector<std::string>& cells, int cell_width, int cell_height, int columns) const {
  Block out;
  for (std::size_t index = 0; index < cells.size(); ++index) {
    const auto column = static_cast<int>(index) % columns;
    const auto row = static_cast<int>(index) / columns;
    out.body += svg_at(column * (cell_width + kGap), row * (cell_height + kRowGap), cells[index]);
    out.height = row * (cell_height + kRowGap) + cell_height;
  }
  return out;
}

Block Painting::chips(const std::vector<std::uint32_t>& tasks, int cell_width, int columns) const {
  std::vector<std::string> cells;
  const auto shown = tasks.size() <= kMaxChips ? tasks.size() : kMaxChips - 1;
  for (std::size_t index = 0; index < shown; ++index) cells.push_back(cards_.chip(tasks[index], cell_width));
  if (shown < tasks.size()) {
    const auto words = cat({"... and ", plural(tasks.size() - shown, "more rank")});
    cells.push_back(svg_text(4, 25, words, kSmall, cell_width - 4));
  }
  return grid(cells, cell_width, PictureCards::kChipHeight, columns);
}

Block Painting::group(const PictureGroup& group) const {
  Block out;
  const auto width = box_width_ - 2 * kPad - (group.title.empty() ? 0 : 2 * frame_);
  if (!group.title.empty()) {
    const TextStyle bold = {12, true, kInk, Anchor::kStart};
    const auto left = text_width(group.title.size(), bold) + 10;
    const auto characters = static_cast<std::size_t>(std::max(width - left, 0) * 100 / text_width(100, kSmall));
    const auto cpus = cat({"CPUs ", cpu_text(group.cpus, characters - std::min<std::size_t>(characters, 5))});
    out = {svg_text(0, 12, group.title, bold, width) + svg_text(width, 12, cpus, kSmallEnd, width - left), 14};
  }
  // Few chips are wide: one rank with four GPUs stands above all of them.
  const auto per_row = std::clamp(static_cast<int>(group.tasks.size()), 1, columns_);
  add(out, chips(group.tasks, columns_ * (card_width_ + kGap) / per_row - kGap, per_row), kGap);
  std::vector<std::string> cells;
  const auto& gpus = group.gpus;
  const auto shown = gpus.size() <= cards_per_group_ ? gpus.size() : cards_per_group_ - 1;
  for (std::size_t index = 0; index < shown; ++index) cells.push_back(cards_.card(gpus[index], card_width_));
  if (shown < gpus.size()) {
    cells.push_back(
        svg_text(4, 20, cat({"... and ", plural(gpus.size() - shown, "more GPU")}), kSmall, card_width_ - 4));
  }
  add(out, grid(cells, card_width_, cards_.card_height(), columns_), kRowGap + 4);
  if (group.title.empty()) return out;
  const auto height = out.height + 2 * kGap;
  return {svg_rect(0, 0, width + 2 * frame_, height, {8, kPaper, kLine, ""}) + svg_at(frame_, kGap, out.body), height};
}

// What stands inside; the border is drawn when the height of its row is known.
Block Painting::box(const PictureBox& box) const {
  const auto width = box_width_ - 2 * kPad;
  const auto characters = static_cast<std::size_t>(width * 100 / text_width(100, kSmall));
  auto below = box.subtitle;
  if (!box.cpus.empty()) {
    const auto used = below.empty() ? 5 : below.size() + 7;
    below += cat({below.empty() ? "" : ", ", "CPUs ", cpu_text(box.cpus, characters - std::min(characters, used))});
  }
  Block out{svg_text(0, 14, box.title, kHeading, width), 16};
  if (!below.empty()) add(out, {svg_text(0, 11, below, kSmall, width), 13}, 5);
  const auto shown = std::min(box.groups.size(), kMaxBoxes);
  for (std::size_t index = 0; index < shown; ++index) add(out, group(box.groups[index]), kGap + 2);
  auto rest = box.rest;
  if (shown < box.groups.size()) rest = cat({"... and ", plural(box.groups.size() - shown, "more NUMA node")});
  if (!rest.empty()) add(out, {svg_text(0, 11, rest, kSmall, width), 13}, kGap + 2);
  return out;
}

Block Painting::boxes() const {
  Block out;
  const auto shown = std::min(model_.boxes.size(), kMaxBoxes);
  for (std::size_t first = 0; first < shown; first += static_cast<std::size_t>(per_row_)) {
    std::vector<Block> row;
    int height = 0;
    for (auto index = first; index < std::min(shown, first + static_cast<std::size_t>(per_row_)); ++index) {
      row.push_back(box(model_.boxes[index]));
      height = std::max(height, row.back().height);
    }
    Block line{"", height + 2 * kPad};
    for (std::size_t index = 0; index < row.size(); ++index) {
      const auto x = static_cast<int>(index) * (box_width_ + kBoxGap);
      line.body += svg_rect(x, 0, box_width_, line.height, {12, kPackage, kLine, ""});
      line.body += svg_at(x + kPad, kPad, row[index].body);
    }
    add(out, line, kBoxGap);
  }
  if (shown < model_.boxes.size()) {
    const auto words = cat({"... and ", std::to_string(model_.boxes.size() - shown), " more"});
    add(out, {svg_text(0, 12, words, kBody, width_), 16}, kBoxGap);
  }
  return out;
}

Block Painting::roaming() const {
  if (model_.roaming.empty()) return {};
  Block inner{svg_text(0, 14, model_.roaming_title, kHeading, width_), 16};
  const auto columns = (width_ - 2 * kPad + kGap) / (PictureCards::kNarrowest + kGap);
  add(inner, chips(model_.roaming, (width_ - 2 * kPad + kGap) / columns - kGap, columns), kGap + 2);
  const auto height = inner.height + 2 * kPad;
  return {svg_rect(0, 0, width_, height, {12, kPackage, kLine, ""}) + svg_at(kPad, kPad, inner.body), height};
}

// A table where it fits, else the lines of the text.
Block Painting::matrix() const {
  Block out;
  const auto text = visibility_matrix(picture_, model_);
  if (text.empty()) return out;
  if (model_.columns.size() > kMaxMatrix) {
    for (const auto line : split(text, '\n')) add(out, {svg_text(0, 12, trim(line), kSmall, width_), 14}, 2);
    return out;
  }
  const auto all = picture_.tasks.size();
  const auto rows = static_cast<std::uint32_t>(all <= kMaxMatrix ? all : kMaxMatrix - 1);
  out = {svg_text(kLabel - 8, 12, "GPU", kSmallEnd, kLabel), 18};
  for (std::size_t column = 0; column < model_.columns.size(); ++column) {
    out.body += svg_text(kLabel + static_cast<int>(column) * kCell + kCell / 2, 12,
                         std::to_string(model_.columns[column]), {11, true, kMuted, Anchor::kMiddle}, kCell);
  }
  for (std::uint32_t task = 0; task < rows; ++task) add(out, {matrix_row(task), kCellHeight}, 0);
  if (rows < all) {
    add(out, {svg_text(0, 12, cat({"... and ", plural(all - rows, "more rank")}), kSmall, width_), 16}, 4);
  }
  return out;
}

std::string Painting::matrix_row(std::uint32_t task) const {
  auto row = cards_.pill(0, 3, task);
  for (std::size_t column = 0; column < model_.columns.size(); ++column) {
    const auto x = kLabel + static_cast<int>(column) * kCell;
    const auto sight = sight_of(picture_, model_, task, model_.columns[column]);
    const bool is_own = sight == "own";
    if (is_own || sight == "yes") {
      row += svg_rect(x + 2, 2, kCell - 4, kCellHeight - 4,
                      {4, cards_.colour(task).fill, "none", is_own ? "" : " fill-opacity=\"0.18\""});
    }
    row += svg_text(x + kCell / 2, 16, sight, {11, is_own, is_own ? cards_.colour(task).text : kMuted, Anchor::kMiddle},
                    kCell);
  }
  return row;
}

Block Painting::visibility() const {
  if (model_.visibility == Visibility::kNothing) return {};
  Block inner{svg_text(0, 14, "Which rank can use which GPU", kHeading, width_), 16};
  add(inner, {svg_text(0, 12, model_.visibility_sentence, kBody, width_), 14}, 6);
  add(inner, matrix(), kGap);
  if (!model_.matrix_legend.empty()) add(inner, {svg_text(0, 12, model_.matrix_legend, kSmall, width_), 14}, 6);
  const auto height = inner.height + 2 * kPad;
  return {svg_rect(0, 0, width_, height, {12, kPaper, kLine, ""}) + svg_at(kPad, kPad, inner.body), height};
}

Block Painting::legend() const {
  Block out;
  int x = 0;
  const auto entry = [&](std::string_view words, const std::string& sign) {
    out.body += svg_at(x, 0, sign + svg_text(30, 12, words, kSmall, 400));
    x += 30 + text_width(words.size(), kSmall) + 14;
    out.height = 18;
  };
  if (!picture_.tasks.empty()) {
    const auto& colour = cards_.colour(0).fill;
    entry("cores of a rank", svg_rect(0, 1, 22, 14, {3, colour, "none", " fill-opacity=\"0.15\""}) +
                                 svg_rect(2, 3, 4, 10, {2, colour, "none", ""}));
    if (!model_.step_gpus.empty()) {
      entry("its GPU", svg_rect(0, 1, 22, 14, {3, kPaper, kLine, ""}) + svg_rect(2, 3, 4, 10, {2, colour, "none", ""}));
    }
  }
  if (cards_.has_step() && model_.step_gpus.size() < picture_.topology.gpus.size()) {
    entry("not of this step", svg_rect(0, 1, 22, 14, {3, "none", kLine, " stroke-dasharray=\"4 3\""}));
  }
  return out;
}

std::string Painting::document() const {
  Block page{svg_text(0, 18, model_.title, {20, true, kInk, Anchor::kStart}, width_), 20};
  add(page, {svg_text(0, 12, model_.summary, {13, false, kMuted, Anchor::kStart}, width_), 16}, 6);
  add(page, roaming(), kBoxGap);
  add(page, boxes(), kBoxGap);
  add(page, visibility(), kBoxGap);
  add(page, legend(), kBoxGap);
  const auto characters = static_cast<std::size_t>(width_ * 100 / text_width(100, kSmall));
  int gap = kGap;
  for (const auto& remark : model_.remarks) {
    for (const auto& line : wrapped(remark, characters)) {
      add(page, {svg_text(0, 11, line, kSmall, width_), 13}, gap);
      gap = 3;
    }
    gap = 5;
  }
  const auto width = std::to_string(width_ + 2 * kMargin);
  const auto height = std::to_string(page.height + 2 * kMargin);
  return cat({"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" ",
              "width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ", width, " ", height,
              "\" role=\"img\" font-family=\"sans-serif\">\n<title>", xml_escaped(model_.title), "</title>\n<desc>",
              xml_escaped(cat({model_.summary, ". ", model_.visibility_sentence})), "</desc>\n",
              svg_rect(0, 0, width_ + 2 * kMargin, page.height + 2 * kMargin, {0, kPaper, "none", ""}),
              svg_at(kMargin, kMargin, page.body), "</svg>\n"});
}

}  // namespace

std::string picture_svg(const NodePicture& picture) { return Painting(picture).document(); }

}  // namespace bootstrap
