// The few shapes of SVG 1.1 that our pictures are made of. All texts are escaped here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bootstrap {

inline constexpr std::string_view kInk = "#1f2933";
inline constexpr std::string_view kMuted = "#5a6675";
inline constexpr std::string_view kLine = "#d0d7e1";

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  int size = 12;
  bool bold = false;
  std::string_view fill = kInk;
  Anchor anchor = Anchor::kStart;
};

struct BoxStyle {
  int radius = 6;
  std::string_view fill = "none";
  std::string_view stroke = "none";
  std::string_view more;  // attributes of our own making
};

std::string xml_escaped(std::string_view text);  // of printable ASCII

// No font is known here: 0.6 em for each character, 0.65 in bold type, is more than most sans-serif fonts take.
int text_width(std::size_t characters, const TextStyle& style);
// `y` is the base line. Text wider than `width` ends in "...".
std::string svg_text(int x, int y, std::string_view text, const TextStyle& style, int width);
std::string svg_rect(int x, int y, int width, int height, const BoxStyle& style);
std::string svg_at(int x, int y, std::string_view body);  // `body` moved there
// A group with a tooltip, which screen readers read as well.
std::string svg_titled(std::string_view title, std::string_view body);

}  // namespace bootstrap
