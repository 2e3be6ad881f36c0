// What srun knows of its step without slurmctld: its own options, what the program is, and addresses of host names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/program/program_files.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"
#include "spank_api.h"

namespace bootstrap {

// Where no thread can start (a limit of processes or of memory), the caller does the work itself.
template <class Value>
Result<Value> call_in_time(std::string_view what, std::function<Result<Value>()> work, Deadline deadline) {
  auto result = call_with_deadline<Value>(what, work, deadline);
  return result || result.error().code != ErrorCode::kUnavailable ? std::move(result) : work();
}

// A ReadHead that opens executable regular files alone. srun runs as the user.
ProgramHead head_of_program(const std::string& path);

// /proc/self/cmdline, without its first word.
std::vector<std::string> own_command_line();

// In local_user_init. A program whose file cannot be read in time (a file server that does not answer) is unseen.
SrunFacts gather_srun_facts(spank_t spank, const Environment& environment, const UserChoice& choice,
                            const Settings& settings, Deadline deadline);

struct ResolvedName {
  std::string address = {};  // the first that is no loopback address; empty: there is none
  bool is_unknown = false;   // to the name server, or there is none
  bool is_loopback = false;  // all its addresses are
};

// May take as long as the name servers do. A name server that does not answer leaves all as they are.
ResolvedName look_up(const std::string& name);

// By rank: whether its node has reported to srun that it started the task. Empty where srun does not show that.
std::vector<bool> started_tasks();

// Whether any task has started; true where srun does not show that.
bool has_started_tasks();

}  // namespace bootstrap
