// What one rank of a check found on its side, and the text in which it tells rank 0.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_report.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/util/text.h"

namespace bootstrap {
namespace {

bool is_printable(char character) { return character >= 0x20 && character <= 0x7e; }

std::string clean(std::string_view text) {
  std::string out(text.substr(0, kMaxReportText));
  std::replace_if(
      out.begin(), out.end(), [](char character) { return !is_printable(character); }, '?');
  return out;
}

// The members in the order in which they are written: one list for both ways, so that they cannot differ.
template <class Report, class Visitor>
void visit(Report& report, Visitor&& field) {
  field("stamp", report.step_tag);
  field("rank", report.rank);
  field("host", report.host);
  field("address", report.address);
  field("port", report.port);
  field("size", report.size);
  field("layout", report.layout);
  field("set_by", report.set_by);
  field("has_plan", report.has_plan);
  field("plan_trouble", report.plan_trouble);
  field("reach", report.reach);
  field("reach_trouble", report.reach_trouble);
  field("target", report.target);
  field("interface", report.interface);
  field("round_trip_us", report.round_trip_us);
  field("clock_offset_us", report.clock_offset_us);
  field("clock_error_us", report.clock_error_us);
  field("has_pmix", report.has_pmix);
  field("pmix_client", report.pmix_client);
  field("pmix_server", report.pmix_server);
  field("pmix_trouble", report.pmix_trouble);
  field("nccl_version", report.nccl_version);
  field("nccl_path", report.nccl_path);
  field("nccl_trouble", report.nccl_trouble);
  field("cuda_version", report.cuda_version);
  field("cuda_module", report.cuda_module);
  field("openmp_threads", report.openmp_threads);
  field("has_gpus", report.has_gpus);
  field("is_nvidia", report.is_nvidia);
  field("may_share_gpus", report.may_share_gpus);
  field("leaves_gpus", report.leaves_gpus);
  field("gpus_on_node", report.gpus_on_node);
  field("gpu_list", report.gpu_list);
  field("own_gpu", report.own_gpu);
  field("open_gpus", report.open_gpus);
  field("closed_gpus", report.closed_gpus);
  field("gpu_cure", report.gpu_cure);
  field("cpus", report.cpus);
  field("cpu_count", report.cpu_count);
  field("cpus_on_node", report.cpus_on_node);
  field("shm_free", report.shm_free);
  field("locked_memory", report.locked_memory);
  field("rdma_devices", report.rdma_devices);
  field("kernel", report.kernel);
  field("libc", report.libc);
}

template <class Enum>
constexpr Enum kLast{};
template <>
constexpr Reach kLast<Reach> = Reach::kForeign;
template <>
constexpr SetBy kLast<SetBy> = SetBy::kPreload;

class Writer {
 public:
  template <class Value>
  void operator()(std::string_view name, const Value& value) {
    text += cat({name, "=", written(value), "\n"});
  }

  std::string text;

 private:
  static std::string written(const std::string& value) { return clean(value); }

  // Of too many or too long ones the first are told.
  static std::string written(const std::vector<std::string>& items) {
    std::string out;
    std::size_t count = 0;
    for (const auto& item : items) {
      auto word = clean(item);
      std::replace(word.begin(), word.end(), ' ', '?');
      if (word.empty() || out.size() + word.size() >= kMaxReportText || ++count > kMaxReportItems) break;
      out += cat({out.empty() ? "" : " ", word});
    }
    return out;
  }

  template <class Value>
  static std::string written(Value value) {
    if constexpr (std::is_enum_v<Value>) {
      return std::to_string(static_cast<unsigned>(value));
    } else {
      return std::to_string(value);
    }
  }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : lines_(split(text, '\n')) {
    is_right = !lines_.empty() && lines_.back().empty();
  }

  template <class Value>
  void operator()(std::string_view name, Value& value) {
    if (!is_right) return;
    const auto line = at_ < lines_.size() ? lines_[at_++] : std::string_view();
    is_right = line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=' &&
               read(line.substr(name.size() + 1), value);
  }

  bool is_at_end() const { return at_ + 1 == lines_.size(); }

  bool is_right = true;

 private:
  static bool read(std::string_view text, std::string& value) {
    if (text.size() > kMaxReportText || !std::all_of(text.begin(), text.end(), is_printable)) return false;
    value = text;
    return true;
  }

  static bool read(std::string_view text, std::vector<std::string>& items) {
    std::string checked;
    if (!read(text, checked)) return false;
    if (text.empty()) return true;
    for (const auto word : split(text, ' ')) {
      if (word.empty() || items.size() == kMaxReportItems) return false;
      items.emplace_back(word);
    }
    return true;
  }

  // In the one form in which it is written: no sign but that of a negative number, no zeros before it.
  template <class Value>
  static bool read(std::string_view text, Value& value) {
    const bool is_negative = std::is_same_v<Value, std::int64_t> && text.starts_with('-');
    const auto number = parse_unsigned(text.substr(is_negative ? 1 : 0), max_of<Value>());
    if (!number) return false;
    value = static_cast<Value>(*number);
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      if (is_negative) value = -value;
    }
    return cat({is_negative ? "-" : "", std::to_string(*number)}) == text && !(is_negative && *number == 0);
  }

  template <class Value>
  static constexpr std::uint64_t max_of() {
    if constexpr (std::is_enum_v<Value>) {
      return static_cast<std::uint64_t>(kLast<Value>);
    } else {
      return static_cast<std::uint64_t>(std::numeric_limits<Value>::max());
    }
  }

  std::vector<std::string_view> lines_;
  std::size_t at_ = 0;
};

}  // namespace

std::string write_report(const CheckReport& report) {
  Writer writer;
  visit(report, writer);
  return std::move(writer.text);
}

Result<CheckReport> read_report(std::string_view text) {
  CheckReport report;
  Reader reader(text);
  visit(report, reader);
  if (reader.is_right && reader.is_at_end()) return report;
  return fail(ErrorCode::kInvalid,
              "the report of a rank cannot be read: is slurm-bootstrap of one version everywhere?");
}

std::string write_outcome(const ExchangeOutcome& outcome) {
  Writer writer;
  writer("took_us", outcome.took_us);
  writer("trouble", outcome.trouble);
  writer("is_missing", outcome.is_missing);
  return std::move(writer.text);
}

Result<ExchangeOutcome> read_outcome(std::string_view text) {
  ExchangeOutcome outcome;
  Reader reader(text);
  reader("took_us", outcome.took_us);
  reader("trouble", outcome.trouble);
  reader("is_missing", outcome.is_missing);
  if (reader.is_right && reader.is_at_end()) return outcome;
  return fail(ErrorCode::kInvalid, "how a rank's exchange went cannot be read");
}

}  // namespace bootstrap
