// Slurm host lists: "node[001-003,7],login".
// SPDX-License-Identifier: Apache-2.0
#include "core/step/host_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

using Names = std::vector<std::string>;

constexpr bool is_separator(char c) { return c == ',' || c == ' ' || c == '\t'; }
constexpr bool is_name_character(char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; }

// As many digits as Slurm prints: zeros up to the width of the range's first number, more where the number needs them.
std::string padded(std::uint64_t number, std::size_t width) {
  const auto digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

constexpr std::size_t kMostBrackets = 8;  // of one name; each copies all names

class HostListParser {
 public:
  HostListParser(std::string_view text, std::size_t most) : text_(text), most_(most) {}

  Result<Names> run() && {
    for (;;) {
      skip(is_separator);
      item_begin_ = position_;
      if (is_at_end()) return std::move(names_);
      if (auto status = read_item(); !status) return fail(std::move(status).error());
    }
  }

 private:
  bool is_at_end() const { return position_ == text_.size(); }

  template <class Predicate>
  void skip(Predicate predicate) {
    while (!is_at_end() && predicate(text_[position_])) ++position_;
  }

  tl::unexpected<Error> refuse(std::size_t begin, std::size_t end, std::string_view why,
                               ErrorCode code = ErrorCode::kInvalid) const {
    const auto part = quote(text_.substr(begin, end - begin));
    return fail(code,
                cat({"cannot read the host list: ", part, " at character ", std::to_string(begin + 1), " ", why}));
  }

  tl::unexpected<Error> refuse_more(std::string_view what, std::size_t most, std::string_view unit) const {
    return refuse(item_begin_, position_, cat({what, " more than ", std::to_string(most), " ", unit}),
                  ErrorCode::kLimit);
  }

  // Slurm counts the last bracket fastest, and then the others from the left: "a[1-2]b[1-2]c[1-2]" begins
  // a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1.
  Status read_item() {
    Names heads{""};    // up to the last bracket
    Names numbers{""};  // of the last bracket
    longest_ = 0;
    std::size_t brackets = 0;
    for (;;) {
      const auto begin = position_;
      skip(is_name_character);
      const auto literal = text_.substr(begin, position_ - begin);
      longest_ += literal.size();
      const auto count = heads.size() * numbers.size();
      if (longest_ > kMaxNodeName) return refuse_more("begins a name of", kMaxNodeName, "characters");
      if (names_.size() + count > most_) return refuse_more("names", most_, "hosts");
      if (bytes_ + count * longest_ > kMaxNameBytes) return refuse_more("names hosts of", kMaxNameBytes, "bytes");
      if (is_at_end() || is_separator(text_[position_])) {
        for (const auto& head : heads) {
          for (const auto& number : numbers) names_.push_back(cat({head, number, literal}));
        }
        bytes_ += count * longest_;
        return {};
      }
      if (text_[position_] != '[') {
        return refuse(position_, position_ + 1,
                      text_[position_] == ']' ? "closes a bracket that is not open" : "cannot be part of a host name");
      }
      if (++brackets > kMostBrackets) return refuse(item_begin_, position_, "has more than 8 brackets");
      Names longer;
      for (const auto& number : numbers) {
        for (const auto& head : heads) longer.push_back(cat({head, number, literal}));
      }
      heads = std::move(longer);
      numbers.clear();
      if (auto status = read_bracket(numbers); !status) return status;
    }
  }

  Status read_bracket(Names& numbers) {
    const auto longest_before = longest_;
    do {
      const auto begin = ++position_;  // behind the '[' or ','
      skip(is_digit);
      const auto first_end = position_;
      auto last_begin = begin;
      if (!is_at_end() && text_[position_] == '-') {
        last_begin = ++position_;
        skip(is_digit);
      }
      if (is_at_end()) return refuse(begin - 1, text_.size(), "is not closed by ']'");
      const auto width = first_end - begin;
      const auto first = parse_unsigned(text_.substr(begin, width));
      const auto last = parse_unsigned(text_.substr(last_begin, position_ - last_begin));
      const auto end = text_.find_first_of(",]", begin);
      const bool is_complete = width > 0 && position_ > last_begin && position_ == end;
      if (!is_complete) return refuse(begin, end, "is not a number or a range of numbers");
      if (!first || !last) return refuse(begin, end, "holds a number of more than 64 bits");
      if (*first > *last) return refuse(begin, end, "counts down");
      longest_ = std::max(longest_, longest_before + std::max(width, std::to_string(*last).size()));
      if (longest_ > kMaxNodeName) return refuse_more("begins a name of", kMaxNodeName, "characters");
      if (*last - *first >= most_ - numbers.size()) return refuse_more("names", most_, "hosts");
      for (auto number = *first; number < *last; ++number) numbers.push_back(padded(number, width));
      numbers.push_back(padded(*last, width));
    } while (text_[position_] == ',');
    ++position_;  // the ']'
    return {};
  }

  std::string_view text_;
  std::size_t most_;
  std::size_t position_ = 0;
  std::size_t item_begin_ = 0;
  std::size_t longest_ = 0;  // bytes of the item's longest name so far
  std::size_t bytes_ = 0;    // of all names, counted by the longest one of each item
  Names names_;
};

// "node" and "007".
struct NumberedName {
  std::string_view stem;
  std::string_view digits;

  explicit NumberedName(std::string_view name) {
    constexpr std::size_t kMostDigits = 18;  // of a number below 2^63
    auto begin = name.size();
    while (begin > 0 && name.size() - begin < kMostDigits && is_digit(name[begin - 1])) --begin;
    stem = name.substr(0, begin);
    digits = name.substr(begin);
  }

  bool is_beside(const NumberedName& other) const {
    return !digits.empty() && !other.digits.empty() && stem == other.stem && digits.size() == other.digits.size();
  }
  bool is_next_to(const NumberedName& before) const {
    return is_beside(before) && parse_unsigned(digits) == *parse_unsigned(before.digits) + 1;
  }
};

}  // namespace

Result<std::vector<std::string>> parse_host_list(std::string_view text, std::size_t most) {
  return HostListParser(text, most).run();
}

std::string write_host_list(const std::vector<std::string>& hosts) {
  constexpr std::size_t kMostItems = 8;
  std::vector<NumberedName> names(hosts.begin(), hosts.end());
  std::string text;
  std::size_t items = 0;
  for (std::size_t at = 0; at < names.size(); ++items) {
    const bool is_in_bracket = at > 0 && names[at].is_beside(names[at - 1]);
    if (is_in_bracket && items < kMostItems) text.back() = ',';  // the ']' of the item before
    if (!is_in_bracket && at > 0 && items < kMostItems) text += ',';
    if (items == kMostItems) return cat({text, " and ", std::to_string(names.size() - at), " more"});
    auto end = at + 1;
    while (end < names.size() && names[end].is_next_to(names[end - 1])) ++end;
    const bool has_bracket = is_in_bracket || end > at + 1 || (end < names.size() && names[end].is_beside(names[at]));
    if (!is_in_bracket) text += cat({names[at].stem, has_bracket ? "[" : ""});
    text += names[at].digits;
    if (end > at + 1) text += cat({"-", names[end - 1].digits});
    if (has_bracket) text += ']';
    at = end;
  }
  return text;
}

}  // namespace bootstrap
