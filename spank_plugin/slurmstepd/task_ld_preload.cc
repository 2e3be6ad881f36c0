// libbootstrap.so at the end of the tasks' LD_PRELOAD, where that was asked for.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/task_ld_preload.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/settings/ld_preload_list.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "slurmstepd/stepd_facts.h"

namespace bootstrap {

std::string preload_library(const Settings& settings) {
  return settings.preload_library.value.empty() ? BOOTSTRAP_LIBRARY : settings.preload_library.value;
}

namespace {

// musl ends a program with 127 whose LD_PRELOAD names a file that it finds and cannot use, and passes over one that it
// does not find. $LIB is the name of a folder to glibc's loader (ld.so(8)), and a folder that is not there to musl's.
// More ".." than there are folders end at the root.
std::string for_glibc_alone(const std::string& library) {
  constexpr std::string_view kRoot = "/$LIB/../../../../../../../..";
  if (library.front() != '/' || !may_access("/" BOOTSTRAP_GLIBC_LIB, X_OK)) return library;
  return cat({kRoot, library});
}

}  // namespace

Status check_preload(const Settings& settings) {
  const auto library = preload_library(settings);
  const auto cannot = [&](std::string_view why) {
    constexpr std::string_view kRemedy =
        "; install libbootstrap.so there, or set preload_library= in plugstack.conf; the tasks start without it";
    return fail(ErrorCode::kUnavailable, cat({setting_name("preload", settings.preload.source), ": cannot preload ",
                                              library, " on ", own_host(), ": ", why, kRemedy}));
  };
  // A file that is not there would make ld.so complain in every process of the task.
  if (library.find_first_of(" :") != std::string::npos)
    return cannot("LD_PRELOAD does not accept a path with a space or a colon");
  if (!may_access(library, R_OK)) return cannot(std::strerror(errno));
  // Whoever can change it would run code in the tasks of all users.
  if (const auto reason = distrust_of_writers(library); !reason.empty()) return cannot(reason);
  return {};
}

Status preload(spank_t spank, const Settings& settings) {
  const auto current = task_variable(spank, "LD_PRELOAD").value_or("");
  const auto list = append_preload(current, for_glibc_alone(preload_library(settings)));
  if (list == current) return {};
  return set_task_variable(spank, "LD_PRELOAD", list);
}

}  // namespace bootstrap
