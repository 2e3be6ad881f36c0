// Finds the files that a command line names, and judges them by their first bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/environment.h"

namespace bootstrap {

inline constexpr std::size_t kProgramHead = 256;
using ProgramHead = std::optional<std::string>;

// The caller reads files: the first kProgramHead bytes of an executable file, or an empty head if it is not executable.
// nullopt: there is no regular file. A relative path counts from srun's working directory.
using ReadHead = ProgramHead (*)(const std::string& path);

// kImage: an executable image of Apptainer. kScript: a script of another language than Python. kOther: none of these.
enum class FileType : std::uint8_t { kUnseen, kElf, kPython, kScript, kImage, kOther };
FileType type_of(const ProgramHead& file);

class ProgramSearch {
 public:
  ProgramSearch(ReadHead read_head, const Environment& environment, bool has_chdir);

  // As Slurm looks for the program of a step: in PATH, then in srun's own folder.
  ProgramHead find_first(const std::string& word) const;
  ProgramHead find_path(const std::string& word) const;     // with a slash
  ProgramHead find_in_path(const std::string& word) const;  // without one
  ProgramHead find_in_environment(const std::string& word) const;
  ProgramHead find_here(const std::string& word) const;

  void set_path(std::string_view path) { path_ = path; }
  void change_folder() { has_chdir_ = true; }  // relative names are unseen from here on
  void enter_folder(std::string_view path);    // conda run -p PATH
  void enter_named(std::string_view name);     // conda run -n NAME

 private:
  ReadHead read_head_;
  const Environment& environment_;
  std::string path_;
  std::vector<std::string> folders_;
  bool has_chdir_;
};

std::string_view file_name_of(std::string_view path) noexcept;

}  // namespace bootstrap
