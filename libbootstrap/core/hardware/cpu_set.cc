// A set of CPUs by the numbers that Linux gives them, and the two ways in which it is written.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/cpu_set.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kWordBits = 64;

// Every CPU by its own number and a comma: a longer text repeats itself.
constexpr std::size_t kMaxListText = CpuSet::kMaxCpus * 6;

tl::unexpected<Error> refuse(std::string_view kind, std::string_view text, std::string_view why,
                             ErrorCode code = ErrorCode::kInvalid) {
  return fail(code, cat({"the CPU ", kind, " ", quoted(text), " ", why}));
}

tl::unexpected<Error> refuse_size(std::string_view kind, std::string_view text) {
  const auto why = cat({"is too large: the highest possible CPU is ", std::to_string(CpuSet::kMaxCpus - 1)});
  return refuse(kind, text, why, ErrorCode::kLimit);
}

}  // namespace

Result<CpuSet> CpuSet::parse_list(std::string_view text) {
  if (text.size() > kMaxListText) return refuse_size("list", text);
  CpuSet set;
  if (text.empty()) return set;
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto first = parse_unsigned(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_unsigned(item.substr(dash + 1));
    if (!first || !last) return refuse("list", text, "is not a list of numbers and ranges such as \"0-3,8\"");
    if (*first > *last) return refuse("list", text, "has a range that counts down");
    if (*last >= kMaxCpus) return refuse_size("list", text);
    set.add_range(*first, *last);
  }
  return set;
}

Result<CpuSet> CpuSet::parse_mask(std::string_view text) {
  const auto digits = text.starts_with("0x") || text.starts_with("0X") ? text.substr(2) : text;
  if (digits.empty()) return refuse("mask", text, "has no digits");
  if (digits.size() > kMaxCpus / 4) return refuse_size("mask", text);
  CpuSet set;
  set.words_.resize((digits.size() * 4 + kWordBits - 1) / kWordBits);
  std::size_t bit = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, bit += 4) {
    const auto value = parse_hex({&*digit, 1});
    if (!value) return refuse("mask", text, "is not hexadecimal");
    set.words_[bit / kWordBits] |= *value << bit % kWordBits;
  }
  set.trim();
  return set;
}

void CpuSet::add(std::size_t cpu) { add_range(cpu, cpu); }

// By whole 64-bit words: a list may name the largest range thousands of times.
void CpuSet::add_range(std::size_t first, std::size_t last) {
  words_.resize(std::max(words_.size(), last / kWordBits + 1));
  for (auto word = first / kWordBits; word <= last / kWordBits; ++word) {
    const auto low = word == first / kWordBits ? first % kWordBits : 0;
    const auto high = word == last / kWordBits ? last % kWordBits : kWordBits - 1;
    words_[word] |= ~std::uint64_t{0} << low & ~std::uint64_t{0} >> (kWordBits - 1 - high);
  }
}

bool CpuSet::has(std::size_t cpu) const {
  const auto word = cpu / kWordBits;
  return word < words_.size() && (words_[word] >> cpu % kWordBits & 1) != 0;
}

std::size_t CpuSet::count() const {
  std::size_t cpus = 0;
  for (auto word : words_) {
    for (; word != 0; word &= word - 1) ++cpus;
  }
  return cpus;
}

std::vector<std::size_t> CpuSet::members() const {
  std::vector<std::size_t> cpus;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    auto cpu = i * kWordBits;
    for (auto word = words_[i]; word != 0; word >>= 1, ++cpu) {
      if ((word & 1) != 0) cpus.push_back(cpu);
    }
  }
  return cpus;
}

CpuSet CpuSet::operator&(const CpuSet& other) const {
  CpuSet both;
  both.words_.resize(std::min(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < both.words_.size(); ++i) both.words_[i] = words_[i] & other.words_[i];
  both.trim();
  return both;
}

CpuSet CpuSet::operator|(const CpuSet& other) const {
  auto either = words_.size() < other.words_.size() ? other : *this;
  const auto& shorter = words_.size() < other.words_.size() ? *this : other;
  for (std::size_t i = 0; i < shorter.words_.size(); ++i) either.words_[i] |= shorter.words_[i];
  return either;
}

CpuSet CpuSet::operator-(const CpuSet& other) const {
  auto rest = *this;
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) rest.words_[i] &= ~other.words_[i];
  rest.trim();
  return rest;
}

std::string CpuSet::to_list() const { return write_ranges(members()); }

void CpuSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

}  // namespace bootstrap
