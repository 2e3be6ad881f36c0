// The table of a check: one row for each thing that has to work, with the ranks that it does not work for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "tools/check/check_report.h"

namespace bootstrap {

// What rank 0 knows when it has waited long enough.
struct CheckFindings {
  StepId id;
  Layout layout;
  std::vector<std::optional<CheckReport>> reports;  // by rank; nothing: not heard
  std::uint64_t waited_ms = 0;                      // until all were heard, or in vain
  std::uint64_t strangers = 0;                      // connections that were not of this step
  std::string port_trouble;                         // why rank 0 could not listen on MASTER_PORT; empty: it could

  bool has_exchanged = false;    // it was asked for: of all ranks, since it takes all of them
  bool leaves_exchange = false;  // an MPI program may follow, whose MPI_Init fails after a PMIx session of its rank
};

enum class CheckResult : std::uint8_t {
  kOk,
  kAbsent,   // not there, and nothing in this step needs it
  kSkipped,  // could not be tried, since something else failed
  kWarning,  // works, and not as well as it could
  kFailed,
};

struct CheckRow {
  std::string_view name;
  CheckResult result = CheckResult::kOk;
  std::string text;         // one short sentence
  std::vector<Rank> ranks;  // that it concerns, ascending; empty: all, or none in particular
  std::string cure;         // what to do; empty where the text says it, or all is well
};

struct CheckTable {
  std::string title;  // "step 12.0: 4 ranks on 2 nodes, to meet at node001:20037"
  StepId id;
  Layout layout;
  std::vector<CheckRow> rows;

  CheckResult worst() const;  // kOk, kWarning or kFailed
};

// Precondition: rank 0 is among the reports.
CheckTable judge_step(const CheckFindings& findings);

// Of one machine without a step, from the report of a process on it.
CheckTable judge_machine(const CheckReport& report);

// Lines of at most 80 characters unless a word is longer itself; printable ASCII; ends with a newline.
std::string table_text(const CheckTable& table);

// One JSON object, RFC 8259, with a newline at its end.
std::string table_json(const CheckTable& table);

}  // namespace bootstrap
