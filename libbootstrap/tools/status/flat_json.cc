// Reads one line of JSON that another process wrote: an object of numbers, texts, and lists of them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/flat_json.h"

#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxMembers = 256;
constexpr std::size_t kMaxItems = 65536;

// Reads from the front of `rest`. Each function returns nothing when the text is no JSON of this form.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::optional<JsonObject> object() {
    JsonObject members;
    if (!take('{')) return std::nullopt;
    if (!take('}')) {
      do {
        auto name = text();
        if (!name || !take(':') || members.size() == kMaxMembers) return std::nullopt;
        auto found = value();
        if (!found) return std::nullopt;
        members[std::move(*name)] = std::move(*found);
      } while (take(','));
      if (!take('}')) return std::nullopt;
    }
    skip_blanks();
    return rest_.empty() ? std::optional(std::move(members)) : std::nullopt;
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  bool take(char wanted) {
    skip_blanks();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::uint64_t> number() {
    skip_blanks();
    if (take_word("true")) return 1;
    if (take_word("false")) return 0;
    const auto digits = rest_.substr(0, rest_.find_first_not_of("0123456789"));
    rest_.remove_prefix(digits.size());
    return parse_unsigned(digits);
  }

  std::optional<std::string> text() {
    std::string out;
    if (!take('"')) return std::nullopt;
    while (!rest_.empty()) {
      const char next = rest_.front();
      rest_.remove_prefix(1);
      if (next == '"') return out;
      if (static_cast<unsigned char>(next) < 0x20) return std::nullopt;
      if (next == '\\') {
        const auto meant = escaped();
        if (!meant) return std::nullopt;
        out += *meant;
      } else {
        out += next;
      }
    }
    return std::nullopt;
  }

  std::optional<char> escaped() {
    if (rest_.empty()) return std::nullopt;
    const char letter = rest_.front();
    rest_.remove_prefix(1);
    if (letter == 'u') {
      const auto code = rest_.size() < 4 ? std::nullopt : parse_hex(rest_.substr(0, 4), 0xffff);
      if (!code) return std::nullopt;
      rest_.remove_prefix(4);
      return *code > 0xff ? '?' : static_cast<char>(*code);
    }
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const auto at = kLetters.find(letter);
    return at == std::string_view::npos ? std::nullopt : std::optional(kMeanings[at]);
  }

  std::optional<JsonValue> value() {
    skip_blanks();
    if (rest_.starts_with('"')) return text();
    if (!take('[')) return number();
    skip_blanks();
    if (rest_.starts_with('"')) return list<std::string>([this] { return text(); });
    return list<std::uint64_t>([this] { return number(); });
  }

  template <class Item, class Read>
  std::optional<JsonValue> list(Read read) {
    std::vector<Item> items;
    if (take(']')) return items;
    do {
      auto item = read();
      if (!item || items.size() == kMaxItems) return std::nullopt;
      items.push_back(std::move(*item));
    } while (take(','));
    return take(']') ? std::optional<JsonValue>(std::move(items)) : std::nullopt;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<JsonObject> read_flat_json(std::string_view line) {
  if (line.size() > kMaxJsonLine) return std::nullopt;
  return Reader(line).object();
}

}  // namespace bootstrap
