// Tools that start a program without the variables of its task.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/closed_environment.h"

#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// The letters of "-ce"; none for a long option.
std::string_view letters_of(std::string_view option) {
  return option.starts_with("-") && !option.starts_with("--") ? option.substr(1) : std::string_view();
}

// getopt takes the beginning of a long option for all of it.
bool is_long(std::string_view option, std::string_view shortest, std::string_view whole) {
  return option.starts_with(shortest) && whole.starts_with(option);
}

}  // namespace

// env(1); `apptainer help exec`: -e, --cleanenv; -C, --containall; --compat, which has --containall. Not -c, --contain,
// which is about folders.
bool closes_environment(std::string_view tool, std::string_view option) noexcept {
  const auto letters = letters_of(option);
  if (tool == "env") {
    const auto own = letters.substr(0, letters.find_first_of("uCS"));  // the value of one of these follows
    return option == "-" || own.find('i') != std::string_view::npos || is_long(option, "--i", "--ignore-environment");
  }
  const auto own = letters.substr(0, letters.find_first_of("BHSWow"));
  return (tool == "apptainer" || tool == "singularity") &&
         (has_word("--cleanenv --containall --compat", option) || own.find_first_of("eC") != std::string_view::npos);
}

// sudo(8): -E, --preserve-env, --preserve-env=RANK,...
bool sudo_closes_environment(std::span<const std::string> arguments) {
  bool is_value = false;
  for (const std::string_view word : arguments) {
    const auto letters = letters_of(word);
    if (std::exchange(is_value, false)) continue;
    is_value = !letters.empty() && std::string_view("CDRTUghprtu").find(letters.back()) != std::string_view::npos;
    if (!word.starts_with("-") || word == "--") break;
    if (word.starts_with("--preserve-env") || letters.find('E') != std::string_view::npos) return false;
  }
  return true;
}

std::string describe_closed_environment(std::string_view tool, std::string_view option) {
  const auto what = option.empty() ? std::string(tool) : cat({tool, " ", printable(option)});
  auto remedy = cat({"use ", tool, " without ", printable(option)});
  if (tool == "sudo") remedy = "use sudo --preserve-env, if your site allows it";
  if (tool == "apptainer") remedy += ", or pass them from a shell of each task, as APPTAINERENV_RANK and so on";
  if (tool == "singularity") remedy += ", or pass them from a shell of each task, as SINGULARITYENV_RANK and so on";
  return cat({quote(what, 60), " keeps RANK, MASTER_ADDR and the other variables from the program; ", remedy});
}

}  // namespace bootstrap
