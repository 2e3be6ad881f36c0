// Slurm's SPANK interface with C++ types.
// SPDX-License-Identifier: Apache-2.0
#include "spank_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/settings/variables.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/text.h"

namespace bootstrap {

std::string text_item(spank_t spank, spank_item_t which) {
  char* text = nullptr;
  if (spank_get_item(spank, which, &text) != ESPANK_SUCCESS || text == nullptr) return {};
  return text;
}

const char* const* job_environment(spank_t spank) {
  char** entries = nullptr;
  if (spank_get_item(spank, S_JOB_ENV, &entries) != ESPANK_SUCCESS) return nullptr;
  return entries;
}

std::vector<std::string> job_command(spank_t spank) {
  int count = 0;
  char** words = nullptr;
  if (spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS || words == nullptr) return {};
  std::vector<std::string> command;
  for (int i = 0; i < count && words[i] != nullptr; ++i) command.emplace_back(words[i]);
  return command;
}

GpuBindDefault gpu_bind_default_of(spank_t spank) {
  const auto number = [&](spank_item_t which) {
    return parse_unsigned<std::uint32_t>(text_item(spank, which)).value_or(0);
  };
  return gpu_bind_default(number(S_SLURM_VERSION_MAJOR), number(S_SLURM_VERSION_MINOR), number(S_SLURM_VERSION_MICRO));
}

// libslurmfull is one folder below the libraries of its Slurm.
SlurmOfStep slurm_of_step(spank_t spank) {
  SlurmOfStep slurm{.version = text_item(spank, S_SLURM_VERSION), .folder = {}};
  Dl_info info{};
  const bool is_found = ::dladdr(reinterpret_cast<const void*>(&spank_get_item), &info) != 0;
  const std::string_view path = is_found && info.dli_fname != nullptr ? info.dli_fname : "";
  if (path.starts_with('/') && path.find(' ') == std::string_view::npos) {
    const auto plugins = path.substr(0, path.rfind('/'));
    slurm.folder = plugins.substr(0, plugins.rfind('/'));
  }
  return slurm;
}

std::string own_host() {
  const char* const name = std::getenv("SLURMD_NODENAME");
  return name == nullptr ? "" : name;
}

std::optional<std::string> task_variable(spank_t spank, std::string_view name) {
  std::optional<std::string_view> found;
  for_each_variable(spank, [&](std::string_view other, std::string_view value) {
    if (!found && other == name) found = value;
  });
  const auto known = find_known_variable(name);
  if (!found || !known || !known->accepts(*found)) return std::nullopt;
  return std::string(*found);
}

Status set_task_variable(spank_t spank, const std::string& name, const std::string& value) {
  // Slurm reports success for values that it drops, so such a value is refused here.
  if (name.size() + value.size() >= Environment::kMaxValue) {
    return fail(ErrorCode::kLimit, cat({"cannot set ", name, ": its value has ", std::to_string(value.size()),
                                        " bytes, and the limit is 64 KiB"}));
  }
  const auto error = spank_setenv(spank, name.c_str(), value.c_str(), 1);
  if (error == ESPANK_SUCCESS) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot set ", name, ": spank_setenv failed: ", spank_strerror(error)}));
}

void unset_task_variable(spank_t spank, const std::string& name) { (void)spank_unsetenv(spank, name.c_str()); }

void log_error(std::string_view message) { slurm_error("%s", cat({kMessagePrefix, message}).c_str()); }
void log_error(std::string_view step, std::string_view message) { log_error(cat({about_step(step), message})); }

void print_to_stderr(const std::string& text) noexcept {
  for (std::size_t written = 0; written < text.size();) {
    const auto count = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    written += static_cast<std::size_t>(count);
  }
}

void log_warning(std::string_view step, std::string_view message) {
  const auto text = cat({kWarningPrefix, about_step(step), message});
  if (!is_slurmstepd()) {
    slurm_info("%s", text.c_str());
    return;
  }
  print_to_stderr(cat({text, "\n"}));
}

void log_info(std::string_view message) { slurm_info("%s", cat({kMessagePrefix, message}).c_str()); }
void log_info(std::string_view step, std::string_view message) { log_info(cat({about_step(step), message})); }

void log_verbose(std::string_view message) { slurm_verbose("%s", cat({kMessagePrefix, message}).c_str()); }
void log_verbose(std::string_view step, std::string_view message) { log_verbose(cat({about_step(step), message})); }

}  // namespace bootstrap
