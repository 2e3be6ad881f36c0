// Slurm as a SPANK plugin sees it: functions of the same names, which read one struct that a test fills.
// SPDX-License-Identifier: Apache-2.0
#include "spank_double.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace {

// A plain number up to 22.05, an enumerator later.
constexpr auto kSuccess = static_cast<spank_err_t>(ESPANK_SUCCESS);

std::vector<std::string> environment_of_task;
std::vector<char*> environment_pointers;

// The environment of the job with all changes since. It is made again only after a change, so that a test that counts
// instructions counts those of the plugin.
char** job_environment() {
  static std::map<std::string, std::string> seen;
  static std::size_t size = 0;
  const auto& slurm = spank_double();
  if (!environment_pointers.empty() && seen == slurm.task_environment && size == slurm.job_environment.size()) {
    return environment_pointers.data();
  }
  seen = slurm.task_environment;
  size = slurm.job_environment.size();
  auto& entries = environment_of_task;
  entries = slurm.job_environment;
  std::erase_if(entries, [&](const auto& entry) {
    return slurm.task_environment.find(entry.substr(0, entry.find('='))) != slurm.task_environment.end();
  });
  for (const auto& [name, value] : slurm.task_environment) entries.push_back(name + "=" + value);
  environment_pointers.clear();
  for (auto& entry : entries) environment_pointers.push_back(entry.data());
  environment_pointers.push_back(nullptr);
  return environment_pointers.data();
}

spank_err_t number_item(std::uint32_t value, va_list arguments) {
  *va_arg(arguments, std::uint32_t*) = value;
  return kSuccess;
}

spank_err_t get_item(spank_item_t item, va_list arguments) {
  const auto& slurm = spank_double();
  switch (item) {
    case S_JOB_ID:
      return number_item(slurm.job, arguments);
    case S_JOB_STEPID:
      return number_item(slurm.step, arguments);
    case S_JOB_NODEID:
      return number_item(slurm.node_id, arguments);
    case S_JOB_LOCAL_TASK_COUNT:
      return number_item(static_cast<std::uint32_t>(slurm.local_to_global.size()), arguments);
    case S_JOB_TOTAL_TASK_COUNT:
      return number_item(slurm.total_tasks, arguments);
    case S_SLURM_RESTART_COUNT:
      return number_item(slurm.restart, arguments);
    case S_JOB_ENV:
      *va_arg(arguments, char***) = job_environment();
      return kSuccess;
    case S_JOB_ARGV: {
      static char* words[2] = {};
      words[0] = spank_double().program.data();
      *va_arg(arguments, int*) = 1;
      *va_arg(arguments, char***) = words;
      return kSuccess;
    }
    case S_TASK_ID:
      if (!slurm.task) return ESPANK_NOT_TASK;
      *va_arg(arguments, int*) = *slurm.task;
      return kSuccess;
    case S_SLURM_VERSION_MAJOR:
    case S_SLURM_VERSION_MINOR:
    case S_SLURM_VERSION_MICRO:
      *va_arg(arguments, char**) = const_cast<char*>(slurm.version[item - S_SLURM_VERSION_MAJOR].c_str());
      return kSuccess;
    case S_TASK_PID:
      *va_arg(arguments, pid_t*) = slurm.task_pid;
      return kSuccess;
    case S_JOB_LOCAL_TO_GLOBAL_ID: {
      const auto local = va_arg(arguments, std::uint32_t);
      if (local >= slurm.local_to_global.size()) return ESPANK_BAD_ARG;
      return number_item(slurm.local_to_global[local], arguments);
    }
    default:
      return ESPANK_NOT_AVAIL;
  }
}

}  // namespace

SpankDouble& spank_double() {
  static SpankDouble slurm;
  return slurm;
}

spank_t the_spank_handle() { return reinterpret_cast<spank_t>(&spank_double()); }

extern "C" {

spank_context_t spank_context(void) { return spank_double().context; }

#pragma GCC diagnostic push
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wvarargs"  // the enum before the ellipsis is in Slurm's own declaration
#endif
spank_err_t spank_get_item(spank_t /*spank*/, spank_item_t item, ...) {
  if (spank_double().fails("item " + std::to_string(static_cast<int>(item)))) return ESPANK_NOT_AVAIL;
  va_list arguments;
  va_start(arguments, item);
  const auto result = get_item(item, arguments);
  va_end(arguments);
  return result;
}

#pragma GCC diagnostic pop

spank_err_t spank_setenv(spank_t /*spank*/, const char* name, const char* value, int overwrite) {
  if (spank_double().fails(std::string("setenv ") + name)) return ESPANK_ERROR;
  auto& values = spank_double().task_environment;
  if (overwrite == 0 && values.count(name) != 0) return ESPANK_ENV_EXISTS;
  values[name] = value;
  return kSuccess;
}

spank_err_t spank_unsetenv(spank_t /*spank*/, const char* name) {
  auto& slurm = spank_double();
  if (slurm.fails(std::string("unsetenv ") + name)) return ESPANK_ERROR;
  slurm.task_environment.erase(name);
  const std::string start = std::string(name) + "=";
  std::erase_if(slurm.job_environment, [&](const std::string& entry) { return entry.starts_with(start); });
  return kSuccess;
}

spank_err_t spank_option_register(spank_t /*spank*/, struct spank_option* option) {
  if (spank_double().fails(std::string("register ") + option->name)) return ESPANK_ERROR;
  const bool is_new = spank_double().options.emplace(option->name, *option).second;
  return is_new ? kSuccess : ESPANK_BAD_ARG;
}

const char* spank_strerror(spank_err_t /*error*/) { return "an error of the double"; }

void slurm_error(const char* format, ...) {
  std::array<char, 4096> text{};
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  spank_double().errors.emplace_back(text.data());
  (void)std::fprintf(stderr, "error: %s\n", text.data());
}

// Writes to slurmd's log on a node.
void slurm_info(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)std::vfprintf(stderr, format, arguments);
  (void)std::fprintf(stderr, "\n");
  va_end(arguments);
}

void slurm_verbose(const char* /*format*/, ...) {}

}  // extern "C"
