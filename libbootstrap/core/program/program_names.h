// Programs that are known by their names, the script or module in a command line of Python, and tools that start a
// program without the variables of its task.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace bootstrap {

// What a launcher, agent or server does with its task, for people: " starts its own ranks". Empty: it is none of these.
// By the name of the file, without its folder.
std::string_view launcher_reason(std::string_view name) noexcept;
std::string_view launcher_module_reason(std::string_view module) noexcept;  // of `python -m MODULE`
inline bool is_launcher_name(std::string_view name) noexcept { return !launcher_reason(name).empty(); }
extern const std::string_view kStartsRanks;                   // the reason of those that start ranks
bool starts_ranks_of_mpirun(std::string_view name) noexcept;  // Open MPI's mpirun, or its daemon on another node
// True for ./tune, which is a file of the user's: the name is a common word, and no package has a file there.
bool is_users_file(std::string_view word) noexcept;
// For `slurm-bootstrap status`, which is Python: names of tools and launchers, of modules, and of shells, between
// blanks.
std::string names_of_launchers();
std::string names_of_launcher_modules();
std::string names_of_shells();

bool is_shell(std::string_view name) noexcept;
bool is_interpreter(std::string_view name) noexcept;     // of another language than Python: perl, Rscript
bool is_system_command(std::string_view word) noexcept;  // rm, /bin/hostname; not ./test, which is the user's
bool is_python(std::string_view name) noexcept;          // python3, python3.11, pypy3, ipython3
bool is_python_script(std::string_view name) noexcept;   // train.py

// True for the name of a shell or a launcher that is no common word, so it counts anywhere among a program's arguments.
bool is_clear_name(std::string_view name) noexcept;
// True for a launcher that another program's command line follows, as in mpirun python3 train.py.
bool runs_commands(std::string_view name) noexcept;

// A tool runs the program that its command line names. kPython runs scripts and modules of Python, kEnvironment has
// programs of its own, and srun does not see the files of kContainer.
enum class Tool { kNone, kWrapper, kPython, kEnvironment, kContainer };
Tool tool_of(std::string_view name) noexcept;
bool is_identifier(std::string_view word);
bool is_assignment(std::string_view word);           // NAME=VALUE
bool is_subcommand(std::string_view word) noexcept;  // of a tool: exec, run, record
// `option` as getopt reads it: the beginning of a long option counts as the whole option.
bool is_long_option(std::string_view option, std::string_view shortest, std::string_view whole);

bool is_torchrun_module(std::string_view module) noexcept;
bool is_torchrun_script(std::string_view path) noexcept;  // torchrun, torch/distributed/run.py, launch.py

struct PythonCommand {
  std::size_t script = 0;        // word of the script; 0: there is none
  std::string_view module = {};  // empty: there is none
  std::size_t arguments = 0;     // first word behind either
};

// By Python's own options (python(1)). Options of one letter may be joined: -uB. `at(i)` gives the i-th word, the first
// one being Python itself.
template <class At>
PythonCommand read_python(std::size_t count, At at) noexcept {
  constexpr std::string_view kFlags = "bBdEhiIOPqsSuvVx";
  for (std::size_t i = 1; i < count; ++i) {
    const std::string_view word = at(i);
    if (!word.starts_with("-") || word == "-") return {.script = i, .module = {}, .arguments = i + 1};
    if (word == "--check-hash-based-pycs") ++i;
    if (word.starts_with("--")) continue;
    for (std::size_t letter = 1; letter < word.size(); ++letter) {
      const bool is_last = letter + 1 == word.size();
      if (word[letter] == 'c') return {};  // the code is on the command line
      if (word[letter] == 'm' && !is_last) return {.script = 0, .module = word.substr(letter + 1), .arguments = i + 1};
      if (word[letter] == 'm') return {.script = 0, .module = i + 1 < count ? at(i + 1) : "", .arguments = i + 2};
      const bool has_value = word[letter] == 'W' || word[letter] == 'X';
      if (has_value && is_last) ++i;
      if (has_value || kFlags.find(word[letter]) == std::string_view::npos) break;
    }
  }
  return {};
}

// Whether the calling process is a launcher or an agent, also if an interpreter runs it (python /usr/bin/torchrun,
// python -m ...). For the preload: neither allocates nor throws.
bool is_launcher_process(int count, const char* const* words) noexcept;

// Whether the option of `tool` keeps all variables of the task from the program: `env -i`, `apptainer exec --cleanenv`.
bool closes_environment(std::string_view tool, std::string_view option) noexcept;

// True unless one of sudo's options in front of the program preserves the variables. `arguments`: behind sudo.
bool sudo_closes_environment(std::span<const std::string> arguments);

// What people read: `"env -i" keeps RANK, ... from the program; use env without -i`.
std::string describe_closed_environment(std::string_view tool, std::string_view option);

}  // namespace bootstrap
