// What a process starts, by names alone, without files.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
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

ProgramKind kind_by_words(std::span<const std::string> words, const Environment& environment, std::uint32_t nodes) {
  class NoFiles : public ProgramFiles {
    ProgramHead head(const std::string& /*path*/) const override { return std::nullopt; }
  };
  const NoFiles files;
  return classify_program(words,
                          {.environment = environment, .files = files, .has_chdir = false, .nodes = {.count = nodes}})
      .kind;
}

}  // namespace bootstrap
