// The pieces of the SVG picture: a card for each GPU, a chip for the cores of each rank, a pill for its name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cli/node_picture_model.h"

namespace bootstrap {

struct RankColour {
  std::string_view fill;
  std::string_view text;  // what is read on it
};

class PictureCards {
 public:
  static constexpr int kChipHeight = 42;
  static constexpr int kPillHeight = 18;
  static constexpr int kNarrowest = 172;  // card or chip

  // Both must outlive the cards.
  PictureCards(const NodePicture& picture, const PictureModel& model);

  int card_height() const { return card_height_; }  // the same for all
  std::string chip(std::uint32_t task, int width) const;
  std::string card(std::uint32_t gpu, int width) const;
  std::string pill(int x, int y, std::uint32_t task) const;
  int pill_width(std::uint32_t task) const;
  const RankColour& colour(std::uint32_t task) const;  // the same for tasks 8 local ranks apart; pills say which
  bool is_of_step(std::uint32_t gpu) const;
  bool has_step() const { return !picture_.tasks.empty() || !model_.step_gpus.empty(); }

 private:
  std::string stripe(const std::vector<std::uint32_t>& owners, int height) const;
  std::string pills(std::uint32_t gpu, int width) const;
  std::string far_words(std::uint32_t gpu, std::size_t length) const;
  std::string title(std::uint32_t gpu) const;

  const NodePicture& picture_;
  const PictureModel& model_;
  bool shows_device_ = false;
  bool shows_far_ = false;
  int card_height_ = 0;
};

}  // namespace bootstrap
