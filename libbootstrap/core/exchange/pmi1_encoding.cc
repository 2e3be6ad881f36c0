// Bytes as PMI-1 can carry them: several values of printable characters, each below its limit of 1,024.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/pmi1_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kPieceSize = 1000;  // the rest of kMaxPmiValue is for the count in front of the first one
constexpr std::size_t kMaxPieces = 4096;

// Six bits a character, the last ones padded with zero bits. (RFC 4648, section 5, without its padding characters.)
std::string encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() * 8 + 5) / 6);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char byte : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) text.push_back(kAlphabet[bits >> (count - 6) & 63]);
  }
  if (count > 0) text.push_back(kAlphabet[bits << (6 - count) & 63]);
  return text;
}

bool decode_into(std::string_view text, std::uint32_t& bits, unsigned& count, std::string& bytes) {
  for (const char letter : text) {
    const auto value = kAlphabet.find(letter);
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 255));
  }
  return true;
}

}  // namespace

std::vector<std::string> to_pmi_pieces(std::string_view bytes) {
  const std::string text = encode(bytes);
  const std::size_t count = std::max<std::size_t>(1, (text.size() + kPieceSize - 1) / kPieceSize);
  std::vector<std::string> pieces;
  pieces.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece = std::string_view(text).substr(i * kPieceSize, kPieceSize);
    pieces.push_back(cat({i == 0 ? cat({std::to_string(count), ":"}) : "", piece}));
  }
  return pieces;
}

std::optional<std::size_t> count_pmi_pieces(std::string_view first) {
  const auto colon = first.find(':');
  if (colon == std::string_view::npos) return {};
  const auto count = parse_unsigned(first.substr(0, colon), kMaxPieces);
  if (!count || *count == 0) return {};
  return *count;
}

std::optional<std::string> from_pmi_pieces(const std::vector<std::string>& pieces) {
  if (pieces.empty() || count_pmi_pieces(pieces.front()) != pieces.size()) return {};
  std::string bytes;
  bytes.reserve(pieces.size() * kPieceSize);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string_view piece = pieces[i];
    if (i == 0) piece.remove_prefix(piece.find(':') + 1);
    if (!decode_into(piece, bits, count, bytes)) return {};
  }
  return bytes;
}

}  // namespace bootstrap
