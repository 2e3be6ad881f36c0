// The pieces of the SVG picture: a card for each GPU, a chip for the cores of each rank, a pill for its name.
// SPDX-License-Identifier: Apache-2.0
#include "cli/node_picture_cards.h"

#include <algorithm>
#include <array>

#include "cli/svg.h"
#include "core/ranges.h"
#include "core/text.h"

namespace bootstrap {
namespace {

// Okabe and Ito, "Color Universal Design" (2008): told apart by nearly everybody, also side by side.
constexpr std::array<RankColour, 8> kColours = {{{"#0072B2", "#ffffff"},
                                                 {"#E69F00", "#000000"},
                                                 {"#009E73", "#000000"},
                                                 {"#CC79A7", "#000000"},
                                                 {"#56B4E9", "#000000"},
                                                 {"#D55E00", "#000000"},
                                                 {"#F0E442", "#000000"},
                                                 {"#000000", "#ffffff"}}};
constexpr std::string_view kWarning = "#9a3412";

constexpr int kLeft = 16;  // of the words in a card or chip, right of its stripe
constexpr int kRight = 10;
constexpr int kStripe = 5;
constexpr int kPillGap = 4;
constexpr int kMoreWidth = 34;  // "+1000" after the last pill
constexpr std::size_t kMaxStripeParts = 4;

constexpr TextStyle kPillText = {11, true, kInk, Anchor::kMiddle};
constexpr TextStyle kSmall = {11, false, kMuted, Anchor::kStart};
constexpr TextStyle kFarText = {10, true, kWarning, Anchor::kStart};

std::string rank_name(const PictureTask& task) { return cat({"rank ", std::to_string(task.rank)}); }

// How many characters of `style` fit.
std::size_t room(int width, const TextStyle& style) {
  return static_cast<std::size_t>(std::max(width, 0) * 100 / text_width(100, style));
}

}  // namespace

PictureCards::PictureCards(const NodePicture& picture, const PictureModel& model) : picture_(picture), model_(model) {
  const auto& gpus = picture_.topology.gpus;
  std::size_t rows = has_step() ? 1 : 0;
  for (std::uint32_t gpu = 0; gpu < gpus.size(); ++gpu) {
    shows_device_ = shows_device_ || !gpus[gpu].device.empty();
    shows_far_ = shows_far_ || !far_words(gpu, 20).empty();
    int pills = 0;
    for (const auto owner : model_.owners[gpu]) pills = std::min(pills + pill_width(owner) + kPillGap, 1000);
    if (pills - kPillGap > kNarrowest - kLeft - kRight) rows = 2;
  }
  card_height_ =
      48 + (shows_device_ ? 15 : 0) + static_cast<int>(rows) * (kPillHeight + kPillGap) + (shows_far_ ? 14 : 0) + 6;
}

const RankColour& PictureCards::colour(std::uint32_t task) const {
  return kColours[picture_.tasks[task].local_rank % kColours.size()];
}

int PictureCards::pill_width(std::uint32_t task) const {
  return 14 + text_width(rank_name(picture_.tasks[task]).size(), kPillText);
}

std::string PictureCards::pill(int x, int y, std::uint32_t task) const {
  const auto width = pill_width(task);
  auto style = kPillText;
  style.fill = colour(task).text;
  return svg_rect(x, y, width, kPillHeight, {kPillHeight / 2, colour(task).fill, "none", ""}) +
         svg_text(x + width / 2, y + 13, rank_name(picture_.tasks[task]), style, width - 10);
}

// The colours of up to four ranks, below each other, at the left edge.
std::string PictureCards::stripe(const std::vector<std::uint32_t>& owners, int height) const {
  std::string out;
  const auto count = static_cast<int>(std::min(owners.size(), kMaxStripeParts));
  const auto inner = height - 12;
  for (int part = 0; part < count; ++part) {
    const auto start = 6 + inner * part / count;
    const auto end = 6 + inner * (part + 1) / count;
    out +=
        svg_rect(5, start, kStripe, end - start, {2, colour(owners[static_cast<std::size_t>(part)]).fill, "none", ""});
  }
  return out;
}

std::string PictureCards::chip(std::uint32_t index, int width) const {
  const auto& task = picture_.tasks[index];
  const auto words = width - kLeft - kRight;
  const auto binding = binding_of(task, {}, picture_.topology);
  const auto name = rank_name(task);
  const TextStyle bold = {12, true, kInk, Anchor::kStart};
  const auto local = cat({"local ", std::to_string(task.local_rank)});
  auto body = svg_rect(0, 0, width, kChipHeight, {6, "#ffffff", "none", ""}) +  // its tint is to be that of the colour
              svg_rect(0, 0, width, kChipHeight, {6, colour(index).fill, "none", " fill-opacity=\"0.15\""}) +
              stripe({index}, kChipHeight) + svg_text(kLeft, 18, name, bold, words) +
              svg_text(width - kRight, 18, local, {11, false, kMuted, Anchor::kEnd},
                       words - text_width(name.size(), bold) - 6) +
              svg_text(kLeft, 34, where_text(task, binding, room(words, {11, false, kInk, {}})),
                       {11, false, kInk, Anchor::kStart}, words);
  return svg_titled(cat({name, ", ", local, ": ", where_text(task, binding, 1000)}), body);
}

bool PictureCards::is_of_step(std::uint32_t gpu) const {
  return std::binary_search(model_.step_gpus.begin(), model_.step_gpus.end(), gpu);
}

std::string PictureCards::far_words(std::uint32_t gpu, std::size_t length) const {
  std::vector<Rank> far;
  std::string words;
  for (const auto owner : model_.owners[gpu]) {
    const auto& task = picture_.tasks[owner];
    const auto binding = binding_of(task, picture_.topology.gpus[gpu], picture_.topology);
    if (binding != Binding::kFar && binding != Binding::kPartlyFar) continue;
    far.push_back(task.rank);
    const std::string_view before = binding == Binding::kFar ? "far: " : "partly far: ";
    words = cat({before, cpu_text(task.cpus, length - std::min(length, before.size()))});
  }
  std::sort(far.begin(), far.end());
  if (far.empty() || model_.owners[gpu].size() == 1) return words;
  return cat({far.size() == 1 ? "far: rank " : "far: ranks ", write_ranges(far)});
}

std::string PictureCards::pills(std::uint32_t gpu, int width) const {
  const auto& owners = model_.owners[gpu];
  const auto top = 48 + (shows_device_ ? 15 : 0);
  if (owners.empty()) {
    if (!has_step()) return "";
    return svg_text(kLeft, top + 13, is_of_step(gpu) ? model_.free_word : "not of this step", kSmall,
                    width - kLeft - kRight);
  }
  std::string out;
  int x = kLeft;
  int y = top;
  std::size_t shown = 0;
  for (; shown < owners.size(); ++shown) {
    const auto pill_size = pill_width(owners[shown]);
    const auto end = width - kRight - (y > top && shown + 1 < owners.size() ? kMoreWidth : 0);
    if (x + pill_size > end && x > kLeft) {
      if (y > top) break;  // there are two rows
      x = kLeft;
      y += kPillHeight + kPillGap;
    }
    out += pill(x, y, owners[shown]);
    x += pill_size + kPillGap;
  }
  const auto more = cat({"+", std::to_string(owners.size() - shown)});
  if (shown < owners.size()) out += svg_text(x + 2, y + 13, more, kSmall, kMoreWidth);
  const auto words = far_words(gpu, room(width - kLeft - 6, kFarText));
  return words.empty() ? out : out + svg_text(kLeft, card_height_ - 9, words, kFarText, width - kLeft - 6);
}

std::string PictureCards::title(std::uint32_t index) const {
  const auto& gpu = picture_.topology.gpus[index];
  auto words = cat({"GPU ", std::to_string(index), ", PCI ", plain(gpu.pci, 32)});
  if (!gpu.name.empty()) words += cat({", ", plain(gpu.name, 80)});
  if (!gpu.device.empty()) words += cat({", ", plain(gpu.device, 80)});
  if (!gpu.near.empty()) words += cat({", near CPUs ", cpu_text(gpu.near, 400)});
  std::vector<Rank> ranks;
  for (const auto owner : model_.owners[index]) ranks.push_back(picture_.tasks[owner].rank);
  std::sort(ranks.begin(), ranks.end());
  if (!ranks.empty()) words += cat({ranks.size() == 1 ? ", of rank " : ", of ranks ", write_ranges(ranks)});
  return words;
}

std::string PictureCards::card(std::uint32_t index, int width) const {
  const auto& gpu = picture_.topology.gpus[index];
  const auto words = width - kLeft - kRight;
  const bool is_foreign = has_step() && !is_of_step(index);
  const TextStyle bold = {13, true, is_foreign ? kMuted : kInk, Anchor::kStart};
  const auto name = cat({"GPU ", std::to_string(index)});
  const auto model = short_model(gpu.name, room(words, {12, false, kInk, {}}));
  auto body = svg_rect(0, 0, width, card_height_,
                       {6, is_foreign ? "none" : "#ffffff", kLine, is_foreign ? " stroke-dasharray=\"4 3\"" : ""}) +
              stripe(model_.owners[index], card_height_) + svg_text(kLeft, 20, name, bold, words) +
              svg_text(width - kRight, 20, short_pci(model_, gpu), {11, false, kMuted, Anchor::kEnd},
                       words - text_width(name.size(), bold) - 6) +
              svg_text(kLeft, 38, model.empty() ? "model not known" : model,
                       {12, false, is_foreign || model.empty() ? kMuted : kInk, Anchor::kStart}, words);
  if (!gpu.device.empty()) body += svg_text(kLeft, 54, plain(gpu.device, room(words, kSmall)), kSmall, words);
  return svg_titled(title(index), body + pills(index, width));
}

}  // namespace bootstrap
