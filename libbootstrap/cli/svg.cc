// The few shapes of SVG 1.1 that our pictures are made of.
// SPDX-License-Identifier: Apache-2.0
#include "cli/svg.h"

#include "cli/node_picture_model.h"
#include "core/text.h"

namespace bootstrap {
namespace {

std::string attribute(std::string_view name, int value) { return cat({" ", name, "=\"", std::to_string(value), "\""}); }

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char character : text) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += character;
    }
  }
  return out;
}

int text_width(std::size_t characters, const TextStyle& style) {
  return (static_cast<int>(characters) * style.size * (style.bold ? 65 : 60) + 99) / 100;
}

std::string svg_text(int x, int y, std::string_view text, const TextStyle& style, int width) {
  const auto fits = static_cast<std::size_t>(width > 0 ? width * 100 / (style.size * (style.bold ? 65 : 60)) : 0);
  const auto anchor = style.anchor == Anchor::kStart ? "" : style.anchor == Anchor::kEnd ? "end" : "middle";
  return cat({"<text", attribute("x", x), attribute("y", y), attribute("font-size", style.size),
              style.bold ? " font-weight=\"600\"" : "", " fill=\"", style.fill, "\"",
              *anchor == '\0' ? "" : cat({" text-anchor=\"", anchor, "\""}), ">",
              xml_escaped(ellipsized(std::string(text), fits)), "</text>\n"});
}

std::string svg_rect(int x, int y, int width, int height, const BoxStyle& style) {
  return cat({"<rect", attribute("x", x), attribute("y", y), attribute("width", width), attribute("height", height),
              attribute("rx", style.radius), " fill=\"", style.fill, "\"",
              style.stroke == "none" ? "" : cat({" stroke=\"", style.stroke, "\""}), style.more, "/>\n"});
}

std::string svg_at(int x, int y, std::string_view body) {
  return cat({"<g transform=\"translate(", std::to_string(x), ",", std::to_string(y), ")\">\n", body, "</g>\n"});
}

std::string svg_titled(std::string_view title, std::string_view body) {
  return cat({"<g><title>", xml_escaped(title), "</title>\n", body, "</g>\n"});
}

}  // namespace bootstrap
