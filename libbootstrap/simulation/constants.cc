// Constants as text: what is read is checked line by line, and refused in one sentence.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/constants.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "core/util/text.h"

namespace bootstrap::simulation {
namespace {

struct Unit {
  std::string_view name;
  Dimension dimension;
  double factor;
};

// The first of a dimension that makes a number of 1 or more is used to print it.
constexpr std::array kUnits{
    Unit{"s", Dimension::kTime, 1},
    Unit{"ms", Dimension::kTime, 1e-3},
    Unit{"us", Dimension::kTime, 1e-6},
    Unit{"ns", Dimension::kTime, 1e-9},
    Unit{"/s", Dimension::kRate, 1},
    Unit{"Gb/s", Dimension::kBandwidth, 1e9 / 8},
    Unit{"Mb/s", Dimension::kBandwidth, 1e6 / 8},
    Unit{"B", Dimension::kBytes, 1},
    Unit{"", Dimension::kCount, 1},
    Unit{"", Dimension::kNumber, 1},
};

constexpr std::array<std::string_view, 4> kOrigins{"measured", "read in", "assumed", "computed"};
constexpr double kMost = 1e9;

std::string units_of(Dimension dimension) {
  std::string names;
  for (const auto& unit : kUnits) {
    if (unit.dimension == dimension) names += cat({names.empty() ? "" : ", ", unit.name});
  }
  return names.empty() ? "no unit" : names;
}

const ConstantSpec* find_spec(std::string_view name) {
  const auto specs = constant_specs();
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

// What a value may be, beyond its unit: the simulator divides by some, counts up to others, and shall end.
std::string limits_broken(const ConstantSpec& spec, double value) {
  const auto is = [&spec](std::string_view name) { return spec.name == name; };
  const bool is_divisor = spec.dimension == Dimension::kRate || spec.dimension == Dimension::kBandwidth ||
                          is("root_backlog") || is("store_backlog") || is("connect_retry") || is("store_retry");
  if (is_divisor && value < 1e-3) return "must be 0.001 at least";
  if ((is("machine_cores") || is("cores_per_node")) && value > 0 && value < 0.01) return "must be 0 or 0.01 at least";
  if (is("jitter") && value > 1) return "must be 1 at most";
  if (spec.dimension == Dimension::kCount && value != std::floor(value)) return "must be a whole number";
  if (is("tree_width") && value < 2) return "must be 2 or more";
  if (is("tree_width") && value > 65533) return "must be 65533 at most, as for Slurm";
  if (spec.dimension == Dimension::kTime && value > 3600) return "must be an hour at most";
  return "";
}

class ConstantsReader {
 public:
  explicit ConstantsReader(const ConstantsFile& base) : file_(base) { file_.taken = 0; }

  Result<ConstantsFile> read(std::string_view text);

 private:
  Status read_line(std::string_view line);
  Status read_constant(const ConstantSpec& spec, std::string_view value, std::string_view origin);
  auto refuse(std::string_view why) const {
    return fail(ErrorCode::kInvalid, cat({"constants, line ", std::to_string(number_), ": ", why}));
  }

  ConstantsFile file_;
  std::set<std::string, std::less<>> seen_;
  std::size_t number_ = 0;
};

Status ConstantsReader::read_constant(const ConstantSpec& spec, std::string_view value, std::string_view origin) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || number > kMost) {
    return refuse(cat({spec.name, ": ", quoted(value), " does not begin with a number from 0 to 1e9"}));
  }
  const auto unit_name = trim(value.substr(static_cast<std::size_t>(end - value.data())));
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& candidate) {
    return candidate.dimension == spec.dimension && candidate.name == unit_name;
  });
  if (unit == kUnits.end()) {
    return refuse(cat({spec.name, ": unit ", quoted(unit_name), " is not known; it takes ", units_of(spec.dimension)}));
  }
  number *= unit->factor;
  if (const auto broken = limits_broken(spec, number); !broken.empty()) return refuse(cat({spec.name, " ", broken}));
  const auto says_how = [origin](std::string_view word) { return origin.starts_with(word); };
  if (std::none_of(kOrigins.begin(), kOrigins.end(), says_how)) {
    return refuse(
        cat({spec.name, ": say how it was found, behind #: measured, computed, read in or assumed, and more"}));
  }
  file_.values.*spec.member = number;
  file_.origins.insert_or_assign(std::string(spec.name), std::string(origin));
  ++file_.taken;
  return {};
}

Status ConstantsReader::read_line(std::string_view line) {
  const auto hash = line.find('#');
  const auto statement = trim(line.substr(0, hash));
  const auto origin = hash == std::string_view::npos ? std::string_view() : trim(line.substr(hash + 1));
  if (statement.empty()) return {};
  const auto equals = statement.find('=');
  if (equals == std::string_view::npos) return refuse(cat({quoted(statement), " is not \"name = value unit  # how\""}));
  const auto name = trim(statement.substr(0, equals));
  const auto value = trim(statement.substr(equals + 1));
  if (!seen_.emplace(name).second) return refuse(cat({quoted(name), " is there twice"}));
  if (name == "date" || name == "machine") {
    if (quoted(value, 200) != cat({"\"", value, "\""})) return refuse(cat({name, " is not plain, short text"}));
    (name == "date" ? file_.date : file_.machine) = value;
    return {};
  }
  if (const auto* const spec = find_spec(name); spec != nullptr) return read_constant(*spec, value, origin);
  return refuse(
      cat({"there is no constant ", quoted(name), "; slurm-bootstrap simulate --print-constants lists them"}));
}

Result<ConstantsFile> ConstantsReader::read(std::string_view text) {
  if (text.size() > kMaxConstantsText) return fail(ErrorCode::kLimit, "constants: the file is larger than 64 KiB");
  for (const auto line : split(text, '\n')) {
    ++number_;
    auto status = read_line(line);
    if (!status) return fail(status.error());
  }
  return std::move(file_);
}

}  // namespace

Result<ConstantsFile> parse_constants(std::string_view text, const ConstantsFile& base) {
  return ConstantsReader(base).read(text);
}

Result<ConstantsFile> built_in_constants() {
  auto file = parse_constants(built_in_constants_text(), {});
  if (file && file->taken != constant_specs().size()) {
    return fail(ErrorCode::kMissing, "the constants of this build are not complete");
  }
  return file;
}

std::string constants_text(const ConstantsFile& file) {
  std::string out = cat({"date = ", file.date, "\nmachine = ", file.machine, "\n"});
  for (const auto& spec : constant_specs()) {
    const auto origin = file.origins.find(spec.name);
    out += cat({spec.name, " = ", constant_text(spec, file.values.*spec.member), "  # ",
                origin == file.origins.end() ? "" : origin->second, "\n"});
  }
  return out;
}

std::string constant_text(const ConstantSpec& spec, double value) {
  const Unit* best = &kUnits.front();
  for (const auto& unit : kUnits) {
    if (unit.dimension != spec.dimension) continue;
    best = &unit;
    if (value >= unit.factor) break;
  }
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "%.4g", value / best->factor);
  return best->name.empty() ? text.data() : cat({text.data(), " ", best->name});
}

}  // namespace bootstrap::simulation
