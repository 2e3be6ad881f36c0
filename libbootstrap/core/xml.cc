// Elements and attributes of an XML text that a program wrote: one pass, bounded depth, no copy, nothing resolved.
// SPDX-License-Identifier: Apache-2.0
#include "core/xml.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
constexpr bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

// "amp", "#10" or "#xa"; the characters between '&' and ';'.
std::optional<char> referenced(std::string_view reference) {
  if (reference == "amp") return '&';
  if (reference == "lt") return '<';
  if (reference == "gt") return '>';
  if (reference == "quot") return '"';
  if (reference == "apos") return '\'';
  if (!reference.starts_with('#')) return std::nullopt;
  const auto base = reference.starts_with("#x") ? 16 : 10;
  const auto digits = reference.substr(base == 16 ? 2 : 1);
  unsigned code = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return code < 0x7f ? static_cast<char>(code) : '?';
}

}  // namespace

Result<XmlReader::Event> XmlReader::next() {
  if (std::exchange(is_empty_, false)) {
    open_.pop_back();
    return Event::kClose;
  }
  for (;;) {
    const auto tag = text_.find('<', position_);
    const auto between = text_.substr(position_, tag - position_);
    if (open_.empty() && between.find_first_not_of(kSpace) != std::string_view::npos) {
      return refuse("there is text outside of all elements");
    }
    if (tag == std::string_view::npos) {
      return end_of_text().map([](auto) { return Event::kEnd; });
    }
    position_ = tag;
    const auto rest = text_.substr(tag);
    Status skipped;
    if (rest.starts_with("</")) {
      return close_element().map([](auto) { return Event::kClose; });
    }
    if (rest.starts_with("<?")) {
      skipped = skip_past("?>", "declaration");
    } else if (rest.starts_with("<!--")) {
      skipped = skip_past("-->", "comment");
    } else if (rest.starts_with("<!DOCTYPE") && open_.empty()) {
      skipped = skip_past(">", "document type");
    } else {
      return open_element().map([](auto) { return Event::kOpen; });
    }
    if (!skipped) return fail(skipped.error());
  }
}

Status XmlReader::skip_past(std::string_view end, std::string_view what) {
  const auto found = text_.find(end, position_);
  if (found == std::string_view::npos) return refuse(cat({"a ", what, " has no end"}));
  // A document type of its own could define what the rest of the text means.
  if (text_.substr(position_, found - position_).starts_with("<!DOCTYPE") &&
      text_.substr(position_, found - position_).find('[') != std::string_view::npos) {
    return refuse("a document type with declarations in it is not read", ErrorCode::kUnsupported);
  }
  position_ = found + end.size();
  return {};
}

Status XmlReader::open_element() {
  ++position_;
  name_ = read_name();
  if (name_.empty()) return refuse("a '<' begins no element");
  if (open_.empty() && std::exchange(has_root_, true)) return refuse("there is a second outermost element");
  if (open_.size() == kMaxDepth) {
    return refuse(cat({"elements are nested more than ", std::to_string(kMaxDepth), " deep"}), ErrorCode::kLimit);
  }
  attributes_.clear();
  for (;;) {
    const auto before = position_;
    skip_space();
    if (here() == '>' || here() == '/') break;
    if (position_ == before || position_ == text_.size())
      return refuse(cat({"the tag of element ", quoted(name_), " has no end"}));
    if (auto status = read_attribute(); !status) return status;
  }
  if (here() == '/') {
    is_empty_ = true;
    ++position_;
    if (here() != '>') return refuse("a '/' inside a tag does not end it");
  }
  ++position_;
  open_.push_back(name_);
  return {};
}

Status XmlReader::read_attribute() {
  const auto name = read_name();
  if (name.empty()) return refuse(cat({"the tag of element ", quoted(name_), " holds what is no attribute"}));
  skip_space();
  if (here() != '=') return refuse(cat({"attribute ", quoted(name), " has no value"}));
  ++position_;
  skip_space();
  const auto quote = here();
  if (quote != '"' && quote != '\'') return refuse(cat({"the value of ", quoted(name), " is not in quotes"}));
  const auto begin = ++position_;
  const auto end = text_.find(quote, begin);
  if (end == std::string_view::npos) return refuse(cat({"the value of ", quoted(name), " has no end"}));
  const auto value = text_.substr(begin, end - begin);
  if (value.find('<') != std::string_view::npos) return refuse(cat({"the value of ", quoted(name), " holds a '<'"}));
  const auto is_same = [name](const auto& other) { return other.first == name; };
  if (std::any_of(attributes_.begin(), attributes_.end(), is_same)) {
    return refuse(cat({"attribute ", quoted(name), " is there twice"}));
  }
  if (attributes_.size() == kMaxAttributes) return refuse("an element has too many attributes", ErrorCode::kLimit);
  attributes_.emplace_back(name, value);
  position_ = end + 1;
  return {};
}

Status XmlReader::close_element() {
  position_ += 2;
  name_ = read_name();
  if (open_.empty() || open_.back() != name_)
    return refuse(cat({"the end of element ", quoted(name_), " ends nothing"}));
  skip_space();
  if (here() != '>') return refuse(cat({"the end of element ", quoted(name_), " has no '>'"}));
  ++position_;
  open_.pop_back();
  return {};
}

Status XmlReader::end_of_text() const {
  if (!open_.empty()) return refuse(cat({"the text ends inside element ", quoted(open_.back())}));
  if (!has_root_) return refuse("there is no element");
  return {};
}

std::string_view XmlReader::read_name() {
  const auto begin = position_;
  while (is_name_character(here())) ++position_;
  return text_.substr(begin, position_ - begin);
}

void XmlReader::skip_space() {
  while (is_space(here())) ++position_;
}

std::string_view XmlReader::attribute(std::string_view name) const {
  for (const auto& [known, value] : attributes_) {
    if (known == name) return value;
  }
  return {};
}

std::size_t XmlReader::line() const {
  const auto read = text_.substr(0, position_);
  return 1 + static_cast<std::size_t>(std::count(read.begin(), read.end(), '\n'));
}

tl::unexpected<Error> XmlReader::refuse(std::string_view why, ErrorCode code) const {
  return fail(code, cat({"line ", std::to_string(line()), ": ", why}));
}

std::string xml_value(std::string_view raw) {
  std::string value;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    auto character = raw[i];
    if (character == '&') {
      // No reference that we know is longer; looking further for the ';' would make a row of '&' cost its square.
      const auto end = raw.substr(i, 12).find(';');
      const auto known = end == std::string_view::npos ? std::nullopt : referenced(raw.substr(i + 1, end - 1));
      if (known) i += end;
      character = known.value_or('?');
    }
    value += character >= 0x20 && character < 0x7f ? character : '?';
  }
  return value;
}

}  // namespace bootstrap
