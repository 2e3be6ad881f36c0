// The reports of a check: bytes that any process can send are refused, or read as they were written.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/host_list.h"
#include "property.h"
#include "tools/check/check_report.h"
#include "tools/check/check_table.h"

namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace): a test program of one file

void check_rows(const CheckReport& report) {
  CheckFindings findings;
  const auto layout = Layout::make({{*parse_host_list("n[1-2]"), {1, 1}, {0, 1}}});
  findings.layout = *layout;
  findings.reports = {report, report};
  for (Rank rank = 0; rank < 2; ++rank) findings.reports[rank]->rank = rank;
  for (const auto& table : {judge_step(findings), judge_machine(findings)}) {
    for (const char byte : table_text(table) + table_json(table)) {
      check(byte == '\n' || (byte >= 0x20 && byte <= 0x7e), "a table moves no cursor, whatever was reported");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto report = read_record<CheckReport>(as_text(data, size));
  if (!report) return 0;
  check(read_record<CheckReport>(write_record(*report)) == *report, "a report is read as it was written");
  check_rows(*report);
  return 0;
}
