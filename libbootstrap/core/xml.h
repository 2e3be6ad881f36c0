// Elements and attributes of an XML text that a program wrote: one pass, bounded depth, no copy, nothing resolved.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace bootstrap {

// Text between tags, comments and declarations are passed over. What cannot be read without more machinery is refused:
// a DTD with declarations of its own, CDATA sections. The text must outlive the reader.
class XmlReader {
 public:
  static constexpr std::size_t kMaxDepth = 64;
  static constexpr std::size_t kMaxAttributes = 64;

  enum class Event { kOpen, kClose, kEnd };

  explicit XmlReader(std::string_view text) : text_(text) {}

  // An element without content, <a/>, is opened and closed like any other. Not to be called after an error or kEnd.
  Result<Event> next();

  std::string_view name() const { return name_; }  // of the element that was opened or closed
  // Of the element that was opened, as it is written; see xml_value. Empty when it has none.
  std::string_view attribute(std::string_view name) const;
  std::size_t depth() const { return open_.size(); }  // of the open elements, the one that was opened among them
  std::size_t line() const;                           // from 1; for messages only, since it counts from the start

 private:
  Status open_element();
  Status read_attribute();
  Status close_element();
  Status skip_past(std::string_view end, std::string_view what);
  Status end_of_text() const;
  std::string_view read_name();
  void skip_space();
  char here() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  tl::unexpected<Error> refuse(std::string_view why, ErrorCode code = ErrorCode::kInvalid) const;

  std::string_view text_;
  std::size_t position_ = 0;
  std::string_view name_;
  std::vector<std::pair<std::string_view, std::string_view>> attributes_;
  std::vector<std::string_view> open_;  // names of the elements around
  bool is_empty_ = false;               // the element opened last is to be closed without a tag of its own
  bool has_root_ = false;
};

// The value with its references resolved. A byte that is no printable ASCII, or a reference to one, becomes '?'.
std::string xml_value(std::string_view raw);

}  // namespace bootstrap
