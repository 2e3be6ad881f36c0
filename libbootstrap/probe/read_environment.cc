// Reads the environment of this process or of a captured file, and finds the rank of this process in its own.
// SPDX-License-Identifier: Apache-2.0
#include "probe/read_environment.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/settings/variables.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/own_process.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxCapture = std::size_t{64} << 20;

// "NAME=VALUE". The name may be that of a function of bash: "BASH_FUNC_module%%".
bool is_entry(std::string_view entry) {
  const auto name = entry.substr(0, entry.find('='));
  return name.size() < entry.size() && !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

Settings trusted_settings(const Environment& environment) {
  auto settings = process_settings(environment);
  if (::getauxval(AT_SECURE) != 0) settings.nccl_file = settings.pmix_file = {};
  return settings;
}

Environment process_environment() { return read_entries(environ, UnknownVariables::kKeep); }

Result<Environment> captured_environment(const std::string& path) {
  const auto name = path == "-" ? std::string("standard input") : path;
  const Descriptor file(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return fail(ErrorCode::kUnavailable, cat({"cannot read ", name, ": ", std::strerror(errno)}));
  const auto text = read_whole(file.get(), kMaxCapture);
  if (!text) return fail(ErrorCode::kUnavailable, cat({"cannot read ", name, ": ", text.error().message}));
  if (text->size() > kMaxCapture) {
    return fail(ErrorCode::kUnavailable, cat({"cannot read ", name, ": it is larger than 64 MiB"}));
  }
  const char separator = text->find('\0') == std::string::npos ? '\n' : '\0';
  const auto entries = split(*text, separator);
  if (!is_entry(entries.front())) {  // later lines may be parts of a value
    return fail(ErrorCode::kInvalid, cat({"cannot read an environment from ", name,
                                          ": it does not hold NAME=VALUE entries; write it with env -0 in a task"}));
  }
  Environment environment;
  for (const auto entry : entries) {
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      read_entry(environment, entry.substr(0, equals), entry.substr(equals + 1), UnknownVariables::kKeep);
    }
  }
  return environment;
}

MpirunContext read_mpirun_context(const Environment& environment) {
  MpirunContext around;
  if (!is_mpirun_rank(environment)) return around;
  utsname name{};
  if (::uname(&name) == 0) around.host = name.nodename;
  const auto gpus = try_devices(nvidia_device_files());
  around.gpus = static_cast<std::size_t>(std::count(gpus.begin(), gpus.end(), GpuVisibility::Access::kOpen));
  return around;
}

Result<OwnPlan> read_own_task(const Environment& environment) {
  auto task = read_own_plan(environment, read_mpirun_context(environment));
  if (!task || task->facts.knows_hosts) return task;
  return fail(ErrorCode::kUnsupported,
              "under mpirun on several nodes the hosts of the other ranks are not known; start the program with srun");
}

}  // namespace bootstrap
