// Finds the files that a command line names, and judges them by their first bytes.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program_files.h"

#include <algorithm>

#include "core/program/program_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// "#!/usr/bin/env -S VAR=1 python3 -u", "#!/usr/bin/env -S uv run --script".
bool is_python_shebang(std::string_view line) {
  const auto words = split(line, ' ');
  const auto has = [&](auto condition) { return std::any_of(words.begin(), words.end(), condition); };
  return has([](std::string_view word) { return is_python(file_name_of(word)); }) ||
         (has([](std::string_view word) { return file_name_of(word) == "uv"; }) &&
          has([](std::string_view word) { return word == "run"; }));
}

// pip writes this script if the path of Python is too long or has a space: a shell that reads only two lines of it.
bool is_pip_script(std::string_view head) {
  const auto second = head.substr(std::min(head.find('\n'), head.size() - 1) + 1);
  return second.starts_with("'''exec'") && second.substr(0, second.find('\n')).find("python") != std::string_view::npos;
}

}  // namespace

std::string_view file_name_of(std::string_view path) noexcept { return path.substr(path.rfind('/') + 1); }

FileType type_of(const ProgramHead& file) {
  if (!file) return FileType::kUnseen;
  const std::string_view head = *file;
  if (head.starts_with("\x7f"
                       "ELF"))
    return FileType::kElf;
  if (!head.starts_with("#!")) return FileType::kOther;
  const auto line = head.substr(2, head.find('\n') - 2);
  if (is_python_shebang(line) || is_pip_script(head)) return FileType::kPython;
  // Apptainer: "#!/usr/bin/env run-singularity".
  return line.find("run-singularity") == std::string_view::npos ? FileType::kScript : FileType::kImage;
}

ProgramSearch::ProgramSearch(ReadHead read_head, const Environment& environment, bool has_chdir)
    : read_head_(read_head),
      environment_(environment),
      path_(environment.get("PATH").value_or("")),
      has_chdir_(has_chdir) {}

ProgramHead ProgramSearch::find_first(const std::string& word) const {
  if (word.find('/') != std::string::npos) return find_path(word);
  auto file = find_in_path(word);
  return file ? std::move(file) : find_here(word);
}

ProgramHead ProgramSearch::find_path(const std::string& word) const {
  if (has_chdir_ && !word.starts_with('/')) return std::nullopt;
  return read_head_(word);
}

ProgramHead ProgramSearch::find_here(const std::string& word) const { return find_path(cat({"./", word})); }

ProgramHead ProgramSearch::find_in_path(const std::string& word) const {
  for (const auto folder : split(path_, ':')) {
    if (!folder.starts_with('/')) continue;
    if (auto file = read_head_(cat({folder, "/", word}))) return file;
  }
  return std::nullopt;
}

ProgramHead ProgramSearch::find_in_environment(const std::string& word) const {
  for (const auto& folder : folders_) {
    if (auto file = read_head_(cat({folder, "/", word}))) return file;
  }
  for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto base = environment_.get(name);
    if (!base) continue;
    if (auto file = read_head_(cat({*base, "/bin/", word}))) return file;
  }
  return find_path(cat({".venv/bin/", word}));
}

void ProgramSearch::enter_folder(std::string_view path) { folders_.push_back(cat({path, "/bin"})); }

// CONDA_PREFIX is conda's own folder, or that of another environment below its folder envs.
void ProgramSearch::enter_named(std::string_view name) {
  const auto base = environment_.get("CONDA_PREFIX").value_or("");
  if (base.empty()) return;
  if (file_name_of(base) == name) enter_folder(base);
  enter_folder(cat({base, "/envs/", name}));
  enter_folder(cat({base.substr(0, base.size() - file_name_of(base).size()), name}));
}

}  // namespace bootstrap
