// Slurm host lists ("node[001-003,7],login") in compressed form: sized and indexed without expanding them.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/host_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// A list of kMaxHosts names of kMaxNameLength each needs no more; it also makes 32-bit positions enough.
constexpr std::size_t kMaxText = HostList::kMaxHosts * (HostList::kMaxNameLength + 1);
static_assert(kMaxText <= UINT32_MAX);

constexpr bool is_separator(char c) { return c == ',' || c == ' ' || c == '\t'; }
constexpr bool is_name_character(char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; }

template <class Predicate>
std::size_t skip(std::string_view text, std::size_t position, Predicate predicate) {
  while (position < text.size() && predicate(text[position])) ++position;
  return position;
}

tl::unexpected<Error> refuse(std::string_view text, std::size_t begin, std::size_t end, std::string_view why,
                             ErrorCode code = ErrorCode::kInvalid) {
  const auto part = quoted(text.substr(begin, end - begin));
  return fail(code, cat({"cannot read the host list: ", part, " at character ", std::to_string(begin + 1), " ", why}));
}

tl::unexpected<Error> refuse_size(std::string_view text, std::size_t item_begin, std::size_t end) {
  const auto why = cat({"names more than ", std::to_string(HostList::kMaxHosts), " hosts"});
  return refuse(text, item_begin, end, why, ErrorCode::kLimit);
}

tl::unexpected<Error> refuse_length(std::string_view text, std::size_t item_begin) {
  const auto why = cat({"begins a name of more than ", std::to_string(HostList::kMaxNameLength), " characters"});
  return refuse(text, item_begin, text.size(), why, ErrorCode::kLimit);
}

tl::unexpected<Error> refuse_character(std::string_view text, std::size_t position) {
  const auto why = text[position] == ']' ? "closes a bracket that is not open" : "cannot be part of a host name";
  return refuse(text, position, position + 1, why);
}

tl::unexpected<Error> refuse_open_bracket(std::string_view text, std::size_t bracket_begin) {
  return refuse(text, bracket_begin, text.size(), "is not closed by ']'");
}

struct Numbers {  // one range of a bracket: "7" or "08-10"
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  // of the first as it was written
};

// Reads the range at `position`, which is behind a '[' or ','; leaves `position` on the ',' or ']' behind the range.
Result<Numbers> read_numbers(std::string_view text, std::size_t& position) {
  const auto begin = position;
  const auto first_end = skip(text, begin, is_digit);
  const auto has_dash = first_end < text.size() && text[first_end] == '-';
  const auto last_begin = has_dash ? first_end + 1 : begin;
  position = has_dash ? skip(text, last_begin, is_digit) : first_end;
  if (position == text.size()) return refuse_open_bracket(text, begin - 1);

  const auto is_complete = first_end > begin && position > last_begin;
  const auto is_delimited = text[position] == ',' || text[position] == ']';
  const auto first = parse_unsigned(text.substr(begin, first_end - begin));
  const auto last = parse_unsigned(text.substr(last_begin, position - last_begin));
  if (is_complete && is_delimited && first && last && *first <= *last) return Numbers{*first, *last, first_end - begin};

  const auto* const why = !is_complete || !is_delimited ? "is not a number or a range of numbers"
                          : !first || !last             ? "holds a number of more than 64 bits"
                                                        : "counts down";
  return refuse(text, begin, text.find_first_of(",]", begin), why);
}

// As many digits as Slurm prints: zeros up to the width of the range's first number, more where the number needs them.
void append_number(std::string& name, std::uint64_t number, std::size_t width) {
  std::array<char, 20> digits;
  const auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const auto length = static_cast<std::size_t>(end - digits.data());
  if (length < width) name.append(width - length, '0');
  name.append(digits.data(), length);
}

// Adds one to the number between `begin` and the last `rest` characters of a name. Printing it anew takes longer.
void increment(std::string& name, std::size_t begin, std::size_t rest) {
  auto position = name.size() - rest;
  while (position > begin && name[position - 1] == '9') name[--position] = '0';
  if (position == begin) {
    name.insert(begin, 1, '1');
  } else {
    ++name[position - 1];
  }
}

constexpr auto kEndsBehind = [](std::size_t index, const auto& part) { return index < part.end; };

std::size_t printed_length(std::uint64_t number, std::size_t width) {
  std::size_t length = 1;
  while (number >= 10) number /= 10, ++length;
  return std::max(length, width);
}

}  // namespace

class HostList::Parser {
 public:
  explicit Parser(std::string_view text) { list_.text_ = text; }

  Result<HostList> run() && {
    for (;;) {
      item_begin_ = position_ = skip(text(), position_, is_separator);
      if (position_ == text().size()) return std::move(list_);
      if (auto status = read_item(); !status) return fail(std::move(status).error());
    }
  }

 private:
  static std::uint32_t narrow(std::size_t value) { return static_cast<std::uint32_t>(value); }
  std::string_view text() const { return list_.text_; }

  Status read_item() {
    const auto first_bracket = list_.brackets_.size();
    std::size_t hosts = 1;
    std::size_t longest_name = 0;
    for (;;) {
      const auto literal_begin = position_;
      position_ = skip(text(), position_, is_name_character);
      const Slice literal{narrow(literal_begin), narrow(position_ - literal_begin)};
      longest_name += literal.size;
      if (longest_name > kMaxNameLength) return refuse_length(text(), item_begin_);
      if (position_ == text().size() || is_separator(text()[position_])) {
        return finish_item(literal, first_bracket, hosts);
      }
      if (text()[position_] != '[') return refuse_character(text(), position_);

      auto longest_number = read_bracket(literal);
      if (!longest_number) return fail(std::move(longest_number).error());
      longest_name += *longest_number;
      hosts *= list_.brackets_.back().size;  // neither is above kMaxHosts, so this cannot overflow
      if (hosts > kMaxHosts) return refuse_size(text(), item_begin_, position_);
    }
  }

  // Reads "[...]" and returns the length of the longest number in it.
  Result<std::size_t> read_bracket(Slice literal) {
    Bracket bracket{.literal = literal, .first_range = narrow(list_.ranges_.size())};
    std::size_t longest = 0;
    do {
      ++position_;  // the '[' or ','
      const auto numbers = read_numbers(text(), position_);
      if (!numbers) return fail(numbers.error());
      const auto steps = numbers->last - numbers->first;
      if (steps >= kMaxHosts - bracket.size) return refuse_size(text(), item_begin_, position_);
      bracket.size += narrow(steps + 1);
      ++bracket.range_count;
      list_.ranges_.push_back({.last = numbers->last, .end = bracket.size, .width = narrow(numbers->width)});
      longest = std::max(longest, printed_length(numbers->last, numbers->width));
    } while (text()[position_] == ',');
    ++position_;  // the ']'
    list_.brackets_.push_back(bracket);
    return longest;
  }

  // Slurm counts the last bracket fastest, and then the others from the left: "a[1-2]b[1-2]c[1-2]" begins
  // a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1.
  Status finish_item(Slice suffix, std::size_t first_bracket, std::size_t hosts) {
    const auto before = list_.size();
    if (hosts > kMaxHosts - before) return refuse_size(text(), item_begin_, position_);
    auto& brackets = list_.brackets_;
    const auto count = brackets.size() - first_bracket;
    std::uint32_t stride = 1;
    for (std::size_t i = 0; i < count; ++i) {
      auto& bracket = i == 0 ? brackets.back() : brackets[first_bracket + i - 1];
      bracket.stride = stride;
      stride *= bracket.size;
    }
    list_.patterns_.push_back({.suffix = suffix,
                               .first_bracket = narrow(first_bracket),
                               .bracket_count = narrow(count),
                               .end = narrow(before + hosts)});
    return std::monostate{};
  }

  HostList list_;
  std::size_t position_ = 0;
  std::size_t item_begin_ = 0;
};

Result<HostList> HostList::parse(std::string_view text) {
  if (text.size() > kMaxText) return refuse_size(text, 0, text.size());
  return Parser(text).run();
}

std::size_t HostList::size() const { return patterns_.empty() ? 0 : patterns_.back().end; }

// Writes the first `count` brackets of the pattern's host `index`, each behind its literal.
void HostList::append_brackets(const Pattern& pattern, std::size_t count, std::size_t index, std::string& name) const {
  for (std::size_t i = 0; i < count; ++i) {
    const auto& bracket = brackets_[pattern.first_bracket + i];
    const auto number_index = index / bracket.stride % bracket.size;
    const auto begin = ranges_.begin() + bracket.first_range;
    const auto& range = *std::upper_bound(begin, begin + bracket.range_count, number_index, kEndsBehind);
    name.append(view(bracket.literal));
    append_number(name, range.last - (range.end - 1 - number_index), range.width);
  }
}

std::string HostList::at(std::size_t index) const {
  const auto pattern = std::upper_bound(patterns_.begin(), patterns_.end(), index, kEndsBehind);
  const std::size_t before = pattern == patterns_.begin() ? 0 : std::prev(pattern)->end;
  std::string name;
  append_brackets(*pattern, pattern->bracket_count, index - before, name);
  name.append(view(pattern->suffix));
  return name;
}

std::vector<std::string> HostList::expand() const {
  std::vector<std::string> names;
  names.reserve(size());
  std::string name;
  for (const auto& pattern : patterns_) {
    const auto suffix = view(pattern.suffix);
    if (pattern.bracket_count == 0) {
      names.emplace_back(suffix);
      continue;
    }
    const auto outer_count = pattern.bracket_count - 1;
    const auto& inner = brackets_[pattern.first_bracket + outer_count];
    const auto count = pattern.end - names.size();
    for (std::size_t index = 0; index < count; index += inner.size) {
      name.clear();
      append_brackets(pattern, outer_count, index, name);
      name.append(view(inner.literal));
      const auto stem = name.size();
      std::uint32_t begin = 0;
      for (std::size_t i = 0; i < inner.range_count; ++i) {
        const auto& range = ranges_[inner.first_range + i];
        name.resize(stem);
        append_number(name, range.last - (range.end - 1 - begin), range.width);
        name.append(suffix);
        names.push_back(name);
        while (++begin < range.end) {
          increment(name, stem, suffix.size());
          names.push_back(name);
        }
      }
    }
  }
  return names;
}

}  // namespace bootstrap
