// One check from a rank's point of view: what it finds about itself, and how it reports to rank 0, which judges all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string_view>
#include <vector>

#include "core/step/step_facts.h"
#include "probe/deadline.h"
#include "probe/files.h"
#include "tools/check/check_table.h"

namespace bootstrap {

// Python, for its frameworks, and scontrol, for Slurm's version; both closed if the check asks no programs.
using Programs = std::array<Descriptor, 2>;

struct CheckSelf {
  StepFacts facts;
  CheckReport report;  // all but the way to rank 0
  Programs programs;
};

// Errors: kMissing when this process is no task of a step.
Result<CheckSelf> look_at_self(const Environment& environment, bool asks_programs = true);

// Starts a program of PATH, whose answer can be read from the descriptor, and which ends with this process. Never with
// our LD_PRELOAD, which would take it for a rank.
Descriptor start_program(std::vector<std::string> words);

// What the program has written when it ends, or until the deadline. It may hang on a dead file system, and is not
// waited for.
std::string answer_of(const Descriptor& program, Deadline deadline);

// More than a Python on a slow file system takes to start.
inline constexpr std::chrono::milliseconds kTimeOfPrograms(4000);

// Adds what the programs have answered before the deadline.
void add_answers(CheckReport& report, const Programs& programs, Deadline deadline);

// For a check without a step: this machine is the only rank.
CheckFindings look_at_machine(const Environment& environment);

struct CheckSession {
  std::chrono::seconds timeout{10};  // for all ranks to answer
  // Open MPI's MPI_Init fails in a rank that had a PMIx session before (PMIx 4.2, also in another process): so none is
  // opened where a program follows.
  bool leaves_exchange = false;
  // Returns whether all is well. Called on rank 0 alone, in a thread, before any rank receives the verdict.
  std::function<bool(const CheckFindings&)> show;
};

// True if all is well; the same on all ranks that rank 0 reaches. A rank that cannot reach rank 0 prints one
// sentence on standard error.
bool run_check(CheckSelf self, const CheckSession& session);

// Ends the process with one sentence if it lives longer than a check with this timeout may take by its deadlines,
// whatever it hangs in, until alarm(0). `command`: "the check"; the text is kept, not copied.
void limit_time(const char* command, std::chrono::seconds timeout);

}  // namespace bootstrap
