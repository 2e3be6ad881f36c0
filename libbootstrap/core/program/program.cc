// What a step starts, judged by its command line and the first bytes of its file.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.h"

#include <algorithm>
#include <vector>

#include "core/program/launcher_names.h"
#include "core/program/torchrun_options.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using Words = std::vector<std::string>;

std::string_view base_name(std::string_view path) noexcept { return path.substr(path.rfind('/') + 1); }

std::string_view folder_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

Program judged(ProgramKind kind, std::string_view name, std::string_view reason) {
  const auto shown = printable(name);  // the user chose the name, and the reason goes into logs
  return {.kind = kind, .name = shown, .reason = cat({shown, reason})};
}

Program launcher(std::string_view name, Business business) {
  switch (business) {
    case Business::kRanks:
      return judged(ProgramKind::kLauncher, name, " starts its own ranks");
    case Business::kWorkers:
      return judged(ProgramKind::kLauncher, name, " starts its own workers");
    case Business::kServes:
      return judged(ProgramKind::kLauncher, name, " is a server");
    case Business::kShows:
      return judged(ProgramKind::kLauncher, name, " shows what a node has");
    case Business::kOthers:
    case Business::kNone:
      break;
  }
  return judged(ProgramKind::kLauncher, name, " starts other programs");
}

// Python's own options (python(1)). Those of several letters may be joined: -uB.
constexpr std::string_view kPythonFlags = "bBdEhiIOPqsSuvVx";

struct PythonCommand {
  std::size_t script = 0;     // word of the script; 0: there is none
  std::size_t module = 0;     // word of the module's name; 0: there is none
  std::size_t arguments = 0;  // first word behind either
};

// `at(i)` gives the i-th word, the first one being Python itself.
template <class At>
PythonCommand read_python(std::size_t count, At at) noexcept {
  for (std::size_t i = 1; i < count; ++i) {
    const std::string_view word = at(i);
    if (!word.starts_with("-") || word == "-") return {.script = i, .module = 0, .arguments = i + 1};
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    for (std::size_t letter = 1; letter < word.size(); ++letter) {
      if (word[letter] == 'c') return {};  // the code is on the command line
      const bool is_attached = letter + 1 < word.size();
      if (word[letter] == 'm' && is_attached) return {};
      if (word[letter] == 'm') return {.script = 0, .module = i + 1 < count ? i + 1 : 0, .arguments = i + 2};
      if (word[letter] == 'W' || word[letter] == 'X') {
        if (!is_attached) ++i;
        break;
      }
      if (kPythonFlags.find(word[letter]) == std::string_view::npos) break;
    }
  }
  return {};
}

// The path in which Debian and pip put torchrun's own script.
bool is_torchrun_script(std::string_view script) noexcept {
  return base_name(script) == "torchrun" || script.ends_with("torch/distributed/run.py") ||
         script.ends_with("torch/distributed/launch.py");
}

bool is_python_shebang(std::string_view line) {
  const auto words = split(trim(line), ' ');
  std::size_t i = 0;
  if (base_name(words[0]) == "env") {
    ++i;
    while (i < words.size() &&
           (words[i].starts_with("-") || words[i].empty() || words[i].find('=') != std::string_view::npos)) {
      ++i;
    }
  }
  if (i >= words.size()) return false;
  const auto name = base_name(words[i]);
  if (is_python(name)) return true;
  // "uv run --script", "pixi exec python": an environment runner whose file is a script of Python's.
  return name == "uv" && std::find(words.begin(), words.end(), "run") != words.end();
}

// pip's script where the path of Python is too long, or has a space: a shell that reads no further than its second
// line.
bool is_pip_script(std::string_view head) {
  const auto end = head.find('\n');
  if (end == std::string_view::npos) return false;
  const auto second = head.substr(end + 1, head.find('\n', end + 1) - end - 1);
  return second.starts_with("'''exec'") && second.find("python") != std::string_view::npos;
}

class Walk {
 public:
  Walk(std::span<const std::string> words, const ProgramPlace& place)
      : words_(words.begin(), words.end()), place_(place), has_chdir_(place.has_chdir) {
    path_ = place.environment.get("PATH").value_or("");
  }

  Program judge() {
    constexpr std::size_t kMostPrefixes = 32;
    for (std::size_t depth = 0; depth < kMostPrefixes; ++depth) {
      if (at_ >= words_.size()) return {ProgramKind::kUnseen, "", "its command line names no program"};
      const std::string name(base_name(words_[at_]));
      const auto* const prefix = find_prefix(name);
      if (prefix == nullptr) return judge_here(name);
      ++at_;
      const auto first = at_ - 1;
      if (!pass(*prefix)) return std::move(*outcome_);
      if (outcome_) return std::move(*outcome_);
      if (at_ < words_.size() || lookup_ != SearchPlace::kHere) continue;
      at_ = first;  // `env` alone: it is the program
      return judge_file(name);
    }
    return {ProgramKind::kUnseen, "", "its command line has too many prefixes to read"};
  }

 private:
  std::string_view word() const { return words_[at_]; }
  bool has_word_left() const { return at_ < words_.size(); }

  bool unknown(const Prefix& prefix, std::string_view option) {
    outcome_ = Program{ProgramKind::kScript, std::string(prefix.name),
                       cat({"option ", quoted(option, 40), " of ", prefix.name, " is unknown"})};
    return false;
  }

  // Behind a prefix's own words. False: the outcome is known.
  bool pass(const Prefix& prefix) {
    if (!prefix.subcommands.empty()) {
      // `poetry run`; anything else of it is none of ours.
      if (!has_word_left() || !has_word(prefix.subcommands, word())) {
        outcome_ = launcher(prefix.name, Business::kOthers);
        return false;
      }
      ++at_;
    }
    if (!pass_options(prefix)) return false;
    for (std::uint8_t i = 0; i < prefix.positionals && has_word_left(); ++i) ++at_;
    if (has_word_left() && word() == "--") ++at_;
    if (prefix.lookup != SearchPlace::kHere) lookup_ = prefix.lookup;
    return true;
  }

  bool pass_options(const Prefix& prefix) {
    const bool is_env = prefix.name == "env";
    while (has_word_left()) {
      const std::string option(word());
      if (option == "--") {
        ++at_;
        return true;
      }
      if (is_env && !option.starts_with("-") && option.find('=') != std::string::npos) {
        if (option.starts_with("PATH=")) path_ = option.substr(5);
        ++at_;
        continue;
      }
      if (!option.starts_with("-") || (option == "-" && !is_env)) return true;
      if (!pass_option(prefix, option)) return false;
      if (outcome_) return true;
    }
    return true;
  }

  bool pass_option(const Prefix& prefix, const std::string& option) {
    const auto equals = option.find('=');
    const auto name = std::string_view(option).substr(0, equals);
    const bool runs_modules = has_word("uv coverage kernprof", prefix.name);
    if (runs_modules && (name == "-m" || name == "--module") && at_ + 1 < words_.size()) {
      ++at_;
      outcome_ = judge_module(at_);
      return true;
    }
    ++at_;
    if (prefix.name == "env" && (name == "-S" || name == "--split-string")) return split_words(option, equals);
    if (prefix.name == "env" && (name == "-C" || name == "--chdir")) has_chdir_ = true;
    if (has_word(prefix.flags, name)) return true;
    const bool is_long = option.starts_with("--");
    if (has_word(prefix.options, name)) {
      remember(name, equals == std::string::npos && has_word_left() ? word() : option.substr(equals + 1));
      if (equals == std::string::npos) ++at_;
      return true;
    }
    if (is_long) return (prefix.is_attached && equals != std::string::npos) || unknown(prefix, option);
    // "-n5", "-oL", "-q0": the value is attached.
    if (option.size() > 2 && has_word(prefix.options, std::string_view(option).substr(0, 2))) return true;
    if (prefix.name == "nice" && std::string_view(option).substr(1).find_first_not_of("0123456789") == option.npos)
      return true;
    const auto is_flag = [&](char letter) {
      const char flag[] = {'-', letter, '\0'};
      return has_word(prefix.flags, flag);
    };
    return std::all_of(option.begin() + 1, option.end(), is_flag) || unknown(prefix, option);
  }

  // env -S "python3 -u": more words in place of one.
  bool split_words(const std::string& option, std::size_t equals) {
    std::string text;
    if (equals != std::string::npos) text = option.substr(equals + 1);
    if (equals == std::string::npos && has_word_left()) text = words_[at_++];
    Words more;
    for (const auto word : split(text, ' ')) {
      if (!word.empty()) more.emplace_back(word);
    }
    words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(at_), more.begin(), more.end());
    return true;
  }

  // conda run -n NAME, -p PATH: where the programs of that environment are.
  void remember(std::string_view option, std::string_view value) {
    const auto base = place_.environment.get("CONDA_PREFIX").value_or("");
    if (option == "-p" || option == "--prefix") folders_.push_back(cat({value, "/bin"}));
    if ((option != "-n" && option != "--name") || base.empty()) return;
    if (base_name(base) == value) folders_.push_back(cat({base, "/bin"}));
    folders_.push_back(cat({base, "/envs/", value, "/bin"}));
    folders_.push_back(cat({folder_of(base), "/", value, "/bin"}));
  }

  Program judge_here(const std::string& name) {
    if (is_torchrun_script(words_[at_])) return judge_torchrun(at_ + 1);
    if (const auto business = business_of(name); business != Business::kNone) return launcher(name, business);
    if (is_shell(name))
      return judged(ProgramKind::kShell, name, " is a shell: the plugin does not set up what a shell starts");
    if (is_python(name)) return judge_python(name);
    if (is_python_script(name)) return judged(ProgramKind::kTraining, name, " is a Python script");
    if (is_interpreter(name))
      return judged(ProgramKind::kScript, name, " runs a script: the plugin sets up compiled programs and Python");
    return judge_file(name);
  }

  Program judge_torchrun(std::size_t first) {
    const auto decision = find_torchrun_decision(std::span(words_).subspan(std::min(first, words_.size())),
                                                 place_.environment, place_.nodes);
    if (decision.empty()) return {ProgramKind::kTorchrun, "torchrun", "torchrun starts its own ranks"};
    return {ProgramKind::kLauncher, "torchrun", cat({"the user set ", quoted(decision, 40), " for torchrun"})};
  }

  Program judge_module(std::size_t module) {
    const auto& name = words_[module];
    if (is_torchrun_module(name)) return judge_torchrun(module + 1);
    if (const auto business = business_of_module(name); business != Business::kNone) return launcher(name, business);
    return judged(ProgramKind::kTraining, name, " is a Python module");
  }

  Program judge_python(const std::string& name) {
    const auto command =
        read_python(words_.size() - at_, [&](std::size_t i) { return std::string_view(words_[at_ + i]); });
    if (command.module != 0) return judge_module(at_ + command.module);
    if (command.script == 0) return judged(ProgramKind::kTraining, name, " runs Python code");
    const auto& script = words_[at_ + command.script];
    if (is_torchrun_script(script)) return judge_torchrun(at_ + command.arguments);
    const std::string script_name(base_name(script));
    if (const auto business = business_of(script_name); business != Business::kNone)
      return launcher(script_name, business);
    return judged(ProgramKind::kTraining, script_name == "-" ? name : script_name,
                  script_name == "-" ? " runs Python code" : " is a Python script");
  }

  // A wrapper that is not known is one that has a shell or a launcher behind it. Whoever starts ours wants it.
  Program judge_compiled(const std::string& name) {
    const auto started = std::find_if(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1, words_.end(),
                                      [](const auto& word) { return is_started_by_others(base_name(word)); });
    if (started == words_.end() || name == "slurm-bootstrap")
      return judged(ProgramKind::kTraining, name, " is a compiled program");
    return judged(ProgramKind::kScript, name, cat({" may start ", quoted(base_name(*started), 40)}));
  }

  Program judge_file(const std::string& name) {
    if (lookup_ == SearchPlace::kContainer) {
      return {ProgramKind::kUnseen, name, cat({"srun cannot see ", quoted(name, 60), " in a container"})};
    }
    const auto head = find_head(words_[at_]);
    if (!head) return {ProgramKind::kUnseen, name, cat({"srun cannot see ", quoted(words_[at_], 60)})};
    if (head->starts_with("\x7f"
                          "ELF"))
      return judge_compiled(name);
    if (!head->starts_with("#!"))
      return judged(ProgramKind::kScript, name, " is of a file type that srun does not know");
    const auto line = std::string_view(*head).substr(2, head->find('\n') - 2);
    if (is_python_shebang(line) || is_pip_script(*head)) {
      return judged(ProgramKind::kTraining, name, " is a Python script");
    }
    return judged(ProgramKind::kScript, name,
                  cat({" is a script for ", quoted(base_name(split(trim(line), ' ')[0]), 40)}));
  }

  // As Slurm looks for it: in PATH, then in srun's own folder; and in the folders of an environment that is entered.
  std::optional<std::string> find_head(const std::string& program) const {
    if (program.starts_with('/')) return place_.files.head(program);
    if (program.find('/') != std::string::npos) return has_chdir_ ? std::nullopt : place_.files.head(program);
    Words folders = folders_;
    if (lookup_ == SearchPlace::kEnvironment) add_active_environment(folders);
    for (const auto folder : split(path_, ':')) {
      if (folder.starts_with('/')) folders.emplace_back(folder);
    }
    if (!has_chdir_) folders.emplace_back(".");
    for (const auto& folder : folders) {
      if (auto head = place_.files.head(cat({folder, "/", program}))) return head;
    }
    return std::nullopt;
  }

  void add_active_environment(Words& folders) const {
    for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
      if (const auto base = place_.environment.get(name)) folders.push_back(cat({*base, "/bin"}));
    }
    if (!has_chdir_) folders.emplace_back(".venv/bin");
  }

  Words words_;
  const ProgramPlace& place_;
  bool has_chdir_;
  std::string path_;
  std::size_t at_ = 0;
  SearchPlace lookup_ = SearchPlace::kHere;
  Words folders_;
  std::optional<Program> outcome_;
};

bool is_launcher_name(std::string_view program) noexcept { return business_of(base_name(program)) != Business::kNone; }

}  // namespace

Program classify_program(std::span<const std::string> words, const ProgramPlace& place) {
  return Walk(words, place).judge();
}

bool is_launcher_process(int count, const char* const* words) noexcept {
  if (count < 1 || words == nullptr || words[0] == nullptr) return false;
  const std::string_view program = words[0];
  if (is_launcher_name(program) || is_torchrun_script(program)) return true;
  if (!is_python(base_name(program))) return false;
  const auto command = read_python(static_cast<std::size_t>(count), [&](std::size_t i) noexcept {
    return words[i] == nullptr ? std::string_view() : std::string_view(words[i]);
  });
  if (command.module != 0) {
    return is_torchrun_module(words[command.module]) || business_of_module(words[command.module]) != Business::kNone;
  }
  if (command.script == 0) return false;
  return is_torchrun_script(words[command.script]) || is_launcher_name(words[command.script]);
}

}  // namespace bootstrap
