// What this process finds about itself for a check: its plan, libraries, GPUs and machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "core/step/step_facts.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"
#include "tools/check/check_report.h"
#include "tools/check/check_table.h"

namespace bootstrap {

class ProgramAnswers;

struct CheckSelf {
  StepFacts facts;
  CheckReport report;                                 // all but the way to rank 0
  std::shared_ptr<ProgramAnswers> answers = nullptr;  // what is still to come: see add_answers()
};

// Which other programs are asked: python3 for its frameworks, and scontrol for Slurm's version.
enum class AskPrograms : std::uint8_t { kNo, kYes };

// Errors: kMissing when this process is no task of a step.
Result<CheckSelf> look_at_self(const Environment& environment, AskPrograms ask = AskPrograms::kYes);

// More than a Python on a slow file system takes to start.
inline constexpr std::chrono::milliseconds kTimeOfPrograms(4000);

// What the programs have answered by then.
void add_answers(CheckSelf& self, Deadline deadline);

// Without a step.
MachineFindings look_at_machine(const Environment& environment);

}  // namespace bootstrap
