// The words of the command line before CLI11 reads them: unknown names, missing values, and where a program begins.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "core/util/text.h"
#include "tools/cli/help_text.h"

namespace bootstrap {
namespace {

// How many letters have to be changed, added or taken out to make one word the other (Levenshtein).
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    auto diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const auto changed = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, changed}));
    }
  }
  return row.back();
}

// "check", where one name is obvious.
std::optional<std::string> nearest_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t kMostMistakes = 2;
  const auto begins = [&](const std::string& name) { return name.starts_with(word); };
  if (std::count_if(names.begin(), names.end(), begins) == 1) return *std::find_if(names.begin(), names.end(), begins);
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& one, const auto& other) {
    return distance(word, one) < distance(word, other);
  });
  if (nearest == names.end() || distance(word, *nearest) > kMostMistakes) return std::nullopt;
  return *nearest;
}

tl::unexpected<Error> refuse(const CLI::App& command, std::string_view sentence) {
  return fail(ErrorCode::kInvalid, cat({sentence, "; see ", full_name(command), " --help"}));
}

tl::unexpected<Error> refuse_unknown(const CLI::App& command, std::string_view sentence, std::string_view word,
                                     const std::vector<std::string>& names) {
  if (const auto nearest = nearest_name(word, names)) {
    return fail(ErrorCode::kInvalid, cat({sentence, "; did you mean ", *nearest, "?"}));
  }
  return refuse(command, sentence);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* const option : command.get_options()) names.push_back(cat({"--", option->get_lnames().front()}));
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* const subcommand : command.get_subcommands({})) names.push_back(subcommand->get_name());
  return names;
}

const CLI::App* find_subcommand(const CLI::App& command, const std::string& name) {
  for (const auto* const subcommand : command.get_subcommands({})) {
    if (subcommand->get_name() == name) return subcommand;
  }
  return nullptr;
}

bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-' && word != "--"; }

using Words = std::vector<std::string>::const_iterator;

// Takes the options at the beginning of the words, with their values.
Status take_options(const CLI::App& command, Words& at, Words end, std::vector<std::string>& options) {
  for (; at != end && is_option(*at); ++at) {
    const auto name = at->substr(0, at->find('='));
    const auto* const option = command.get_option_no_throw(name);
    if (option == nullptr) {
      return refuse_unknown(command, cat({command.get_name(), " has no option ", bootstrap::quoted(name)}), name,
                            option_names(command));
    }
    const bool takes_value = option->get_items_expected_max() > 0;
    const bool has_value = name.size() < at->size();
    if (has_value && !takes_value) return refuse(command, cat({name, " takes no value"}));
    options.push_back(*at);
    if (!takes_value || has_value) continue;
    if (++at == end) return refuse(command, cat({name, " needs a value: ", name, " ", option->get_type_name()}));
    options.push_back(*at);
  }
  return {};
}

}  // namespace

bool takes_step(const CLI::App& command) { return command.get_name() == "status"; }

Result<CommandWords> read_words(const CLI::App& command, const std::vector<std::string>& words) {
  CommandWords sorted{.command = &command, .options = {}, .program = {}, .step = {}};
  auto at = words.begin();
  auto taken = take_options(command, at, words.end(), sorted.options);
  if (!taken) return fail(taken.error());
  if (at == words.end()) return sorted;
  const auto* const subcommand = find_subcommand(command, *at);
  if (subcommand == nullptr) {
    const auto sentence = cat({"there is no subcommand ", bootstrap::quoted(*at)});
    return refuse_unknown(command, sentence, *at, subcommand_names(command));
  }
  sorted.command = subcommand;
  sorted.options.push_back(*at++);
  taken = take_options(*subcommand, at, words.end(), sorted.options);
  if (!taken) return fail(taken.error());
  if (takes_step(*subcommand) && at != words.end()) {
    sorted.step = *at++;
    taken = take_options(*subcommand, at, words.end(), sorted.options);
    if (!taken) return fail(taken.error());
  }
  if (at != words.end() && *at == "--") ++at;
  if (subcommand->get_allow_extras()) sorted.program.assign(at, words.end());
  if (subcommand->get_allow_extras() || at == words.end()) return sorted;
  return refuse(*subcommand, cat({subcommand->get_name(),
                                  takes_step(*subcommand) ? " takes no second argument " : " takes no argument ",
                                  bootstrap::quoted(*at)}));
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](const std::string& text) {
    const auto value = parse_unsigned(text, most);
    if (value && *value >= least) return std::string();
    return cat(
        {bootstrap::quoted(text), " is not a whole number from ", std::to_string(least), " to ", std::to_string(most)});
  };
  return {check, ""};
}

}  // namespace bootstrap
