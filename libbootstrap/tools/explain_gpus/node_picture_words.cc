// The words of the picture of a node: names made short and harmless, CPU lists, sentences broken into lines.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/util/text.h"
#include "tools/explain_gpus/node_picture_model.h"

namespace bootstrap {

std::string ellipsized(std::string text, std::size_t width) {
  if (text.size() <= width) return text;
  text.resize(width < 3 ? 0 : width - 3);
  return text.append(std::min<std::size_t>(width, 3), '.');
}

std::string plain(std::string_view text, std::size_t width) {
  const auto shown = quoted(text.substr(0, width + 1), width + 1);  // a byte more than fits, so that the cut shows
  return ellipsized(shown.substr(1, shown.size() - 2), width);
}

std::string short_model(std::string_view name, std::size_t width) {
  constexpr std::array<std::string_view, 7> kMakers = {"NVIDIA ",   "Tesla ",          "AMD ", "Instinct ", "Intel ",
                                                       "Intel(R) ", "Data Center GPU "};
  for (const auto maker : kMakers) {
    if (name.substr(0, maker.size()) == maker) name.remove_prefix(maker.size());
  }
  auto whole = plain(name, 256);
  if (whole.size() <= width) return whole;
  // "A100-SXM4" of "A100-SXM4-80GB" says more than "A100-SXM...".
  const auto cut = whole.find_last_of(" -", width);
  if (cut != std::string::npos && cut >= width / 2) return whole.substr(0, cut);
  return ellipsized(whole, width);
}

std::string short_pci(const PictureModel& model, const Gpu& gpu) {
  return plain(std::string_view(gpu.pci).substr(model.short_pci ? 5 : 0), 16);
}

std::string short_device(const Gpu& gpu) {
  const std::string_view path = gpu.device;
  return plain(path.substr(path.find_last_of('/') + 1), 12);  // without a '/' all of it
}

std::string cpu_text(const CpuSet& cpus, std::size_t width) {
  auto whole = cpus.to_list();
  if (whole.size() <= width) return whole;
  const auto parts = split(whole, ',');
  auto count = plural(cpus.count(), "CPU");
  for (const auto& end :
       {cat({",...,", parts.back(), " (", count, ")"}), cat({",...,", parts.back()}), std::string(",...")}) {
    std::string start;
    for (const auto part : parts) {
      if (start.size() + part.size() + 1 + end.size() > width) break;
      start += cat({start.empty() ? "" : ",", part});
    }
    if (!start.empty()) return start + end;
  }
  return count;
}

std::string where_text(const PictureTask& task, Binding binding, std::size_t width) {
  std::string_view before;
  switch (binding) {
    case Binding::kNotKnown:
      return "cores not known";
    case Binding::kEverywhere:
      return "may run on all cores";
    case Binding::kNear:
      before = "cores ";
      break;
    case Binding::kPartlyFar:
      before = "partly far: cores ";
      break;
    case Binding::kFar:
      before = "far: cores ";
      break;
  }
  return cat({before, cpu_text(task.cpus, width > before.size() ? width - before.size() : 0)});
}

std::string plural(std::size_t count, std::string_view noun) {
  return cat({std::to_string(count), " ", noun, count == 1 ? "" : "s"});
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (auto word : split(text, ' ')) {
    auto* line = &lines.back();
    if (!line->empty() && line->size() + 1 + word.size() > width) line = &lines.emplace_back();
    if (!line->empty()) *line += ' ';
    for (; word.size() > width; word.remove_prefix(width)) {
      lines.back() = word.substr(0, width);
      lines.emplace_back();
    }
    lines.back() += word;
  }
  return lines;
}

}  // namespace bootstrap
