// What a process or a step starts, by names alone, without files.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/program/program.h"
#include "core/program/program_names.h"
#include "core/program/python_command.h"

namespace bootstrap {

bool is_launcher_process(int count, const char* const* words) noexcept {
  if (count < 1 || words == nullptr || words[0] == nullptr) return false;
  const auto word = [&](std::size_t i) noexcept { return std::string_view(words[i] == nullptr ? "" : words[i]); };
  const auto is_launcher = [](std::string_view path) noexcept {
    return (is_launcher_name(file_name_of(path)) && !is_users_file(path)) || is_torchrun_script(path);
  };
  if (is_launcher(word(0))) return true;
  if (!is_python(file_name_of(word(0)))) return false;
  const auto command = read_python(static_cast<std::size_t>(count), word);
  if (command.script != 0) return is_launcher(word(command.script));
  return is_torchrun_module(command.module) || !launcher_module_reason(command.module).empty();
}

bool may_start_workers(std::span<const std::string> words) {
  bool is_pythons = false;
  for (const auto& word : words) {
    const auto name = file_name_of(word);
    const bool is_launcher = is_launcher_name(name) || !launcher_module_reason(word).empty();
    if (is_launcher || is_shell(name) || is_torchrun_script(word) || is_torchrun_module(word) || word == "-c")
      return false;
    is_pythons = is_pythons || is_python(name) || is_python_script(name);
  }
  return is_pythons;
}

}  // namespace bootstrap
