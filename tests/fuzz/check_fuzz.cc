// The messages of a check: bytes from anybody who can connect are refused, or come back as they were written.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/step/hostlist.h"
#include "property.h"
#include "tools/check/check_frame.h"
#include "tools/check/check_report.h"
#include "tools/check/check_table.h"

namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace): a test program of one file

struct Heard {
  std::vector<Frame> frames;
  bool is_refused = false;
  bool operator==(const Heard&) const = default;
};

Heard hear(std::string_view text, std::size_t piece) {
  Heard heard;
  FrameReader reader;
  while (!text.empty()) {
    auto bytes = text.substr(0, piece);
    text.remove_prefix(bytes.size());
    while (!bytes.empty()) {
      const auto before = bytes.size();
      auto frame = reader.take(bytes);
      if (!frame) {
        heard.is_refused = true;
        return heard;
      }
      check(bytes.size() < before, "a reader that asks for more has taken something");
      if (!*frame) continue;
      check((*frame)->body.size() <= kMaxFrameBody, "a frame is not larger than it may be");
      heard.frames.push_back(**frame);
    }
  }
  return heard;
}

void check_rows(const CheckReport& report) {
  CheckFindings findings;
  const auto layout = Layout::make({{*HostList::parse("n[1-2]"), {1, 1}, {0, 1}}});
  findings.layout = *layout;
  findings.reports = {report, report};
  for (Rank rank = 0; rank < 2; ++rank) findings.reports[rank]->rank = rank;
  for (const auto& table : {judge_step(findings), judge_machine(report)}) {
    for (const char byte : table_text(table) + table_json(table)) {
      check(byte == '\n' || (byte >= 0x20 && byte <= 0x7e), "a table moves no cursor, whatever was reported");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  const auto whole = hear(text, text.size());
  check(whole == hear(text, 1), "how the network cuts the bytes makes no difference");
  std::string again;
  for (const auto& frame : whole.frames) again += write_frame(frame.kind, frame.body);
  check(text.starts_with(again), "what is heard is what was sent");

  // The input as a body by itself, too: a fuzzer does not find a right length in front of it.
  auto bodies = whole.frames;
  bodies.push_back({FrameKind::kReport, std::string(text)});
  for (const auto& frame : bodies) {
    if (const auto hello = read_hello(frame.body)) check(write_hello(*hello) == frame.body, "a hello comes back");
    if (const auto outcome = read_outcome(frame.body)) {
      check(write_outcome(*outcome) == frame.body, "an outcome comes back");
    }
    const auto report = read_report(frame.body);
    if (!report) continue;
    check(read_report(write_report(*report)) == *report, "a report comes back");
    check_rows(*report);
  }
  return 0;
}
