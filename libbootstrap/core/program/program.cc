// What a step starts, judged by one scan of its command line.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.h"

#include <algorithm>
#include <utility>

#include "core/program/program_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using K = ProgramKind;

constexpr std::size_t kMostWords = 64;  // that are read behind the first one
constexpr std::string_view kWouldHang = "the step would wait for ever";

Program judged(ProgramKind kind, std::string_view name, std::string_view reason) {
  const auto shown = printable(name);  // the user chose the name, and the reason goes into logs
  return {.kind = kind, .name = shown, .reason = cat({shown, reason})};
}

bool is_option(std::string_view word) { return word.starts_with("-"); }

// One pass over the words. The options of tools are unknown, so a word behind an option is its value or the program.
// If that makes a difference, the step is not set up.
class Scan {
 public:
  Scan(std::span<const std::string> words, const ProgramPlace& place)
      : words_(words.begin(), words.end()),
        place_(place),
        search_(place.read_head, place.environment, place.has_chdir) {}

  Program judge() {
    auto program = judge_words();
    if (program.closed.empty()) program.closed = std::move(closed_);
    return program;
  }

 private:
  Program judge_words() {
    if (words_.empty() || words_[0].empty()) return {K::kUnseen, "", "its command line names no program"};
    const std::string first(name_at(0));
    if (auto named = judge_name(0)) return std::move(*named);
    if (is_system_command(words_[0])) return judged(K::kScript, first, " is a command of the system");
    if (is_python(first)) return judge_python(0);
    if (is_python_script(first)) return judged(K::kTraining, first, " is a Python script");
    const auto file = find(0);
    const auto type = type_of(file);
    // A user's own script decides before any word behind it, also if it has the name of a tool.
    if (!words_[0].starts_with('.') || type != FileType::kScript) enter(first);
    const bool is_tool = tool_ != Tool::kNone;
    if (!is_tool && type != FileType::kElf && type != FileType::kPython) return judge_first(file);
    if (first == "env") split_words();
    for (std::size_t k = 1; has(k) && k <= kMostWords; ++k) {
      if (auto decided = judge_word(k)) return std::move(*decided);
    }
    if (candidate_) return std::move(*candidate_);
    if (is_tool && has_operand_)
      return {K::kUnseen, first, cat({"srun cannot see the program that ", first, " starts"})};
    if (is_tool && first != "env") return judged(K::kScript, first, " has no program to start");
    return judge_first(file);
  }

  bool has(std::size_t k) const { return k < words_.size(); }
  std::string_view name_at(std::size_t k) const { return file_name_of(words_[k]); }
  bool is_path(std::size_t k) const { return words_[k].find('/') != std::string::npos; }
  bool is_tool(std::size_t k) const { return tool_of(name_at(k)) != Tool::kNone; }
  bool is_torchrun(std::size_t k) const { return is_torchrun_script(words_[k]); }

  // The word before is an option whose value this word may be.
  bool is_behind_option(std::size_t k) const {
    const auto& before = words_[k - 1];
    return is_option(before) && before != "--" && before.find('=') == std::string::npos;
  }

  // env -S "python3 -u": several words in one.
  void split_words() {
    for (std::size_t k = 1; has(k) && k <= kMostWords; ++k) {
      std::string text = words_[k - 1] == "-S" || words_[k - 1] == "--split-string" ? words_[k] : "";
      if (words_[k].starts_with("-S")) text = words_[k].substr(2);
      if (words_[k].starts_with("--split-string=")) text = words_[k].substr(words_[k].find('=') + 1);
      if (text.find(' ') == text.npos) continue;
      const auto parts = split(text, ' ');
      const auto at = words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(k));
      words_.insert(at, parts.begin(), parts.end());
    }
  }

  // Every program behind a container's tool runs in the container.
  void enter(std::string_view name) {
    entered_ = name;
    operands_ = 0;
    tool_ = std::max(tool_, tool_of(name));
  }

  // Options that change where programs are found: conda run -n NAME, -p PATH; env -C PATH.
  void note_option(std::string_view option, std::string_view value) {
    if (has_word("--chdir --directory --cwd", option) || (name_at(0) == "env" && option == "-C"))
      search_.change_folder();
    if (tool_ != Tool::kEnvironment) return;
    if (option == "-p" || option == "--prefix") search_.enter_folder(value);
    if (option == "-n" || option == "--name") search_.enter_named(value);
  }

  // Notes an option of the last tool, up to its image or program: behind that, options are no longer the tool's.
  void note_closing(std::string_view option) {
    if (operands_ > 1 || candidate_ || !closed_.empty() || !closes_environment(entered_, option)) return;
    closed_ = describe_closed_environment(entered_, option);
  }

  // A word behind an option of an environment runner is not searched in PATH: `conda run -n test`.
  ProgramHead find(std::size_t k) const {
    if (k == 0) return search_.find_first(words_[0]);
    if (is_path(k)) return search_.find_path(words_[k]);
    if (tool_ == Tool::kNone || tool_ == Tool::kContainer) return std::nullopt;
    ProgramHead file;
    if (tool_ == Tool::kEnvironment) file = search_.find_in_environment(words_[k]);
    const bool is_elsewhere = file || (tool_ == Tool::kEnvironment && is_behind_option(k));
    return is_elsewhere ? file : search_.find_in_path(words_[k]);
  }

  // `behind`: the first word behind the name.
  std::optional<Program> judge_by_site(std::string_view name, std::size_t behind) const {
    if (has_word(place_.trainers, name, ',')) return judged(K::kTraining, name, " is in trainers= of plugstack.conf");
    if (!has_word(place_.launchers, name, ',')) return std::nullopt;
    auto program = judged(K::kLauncher, name, " is in launchers= of plugstack.conf");
    program.remedy = start_without(behind);
    return program;
  }

  Program judge_launcher(std::string_view name, std::string_view reason, std::size_t behind) const {
    auto program = judged(K::kLauncher, name, reason);
    program.starts_ranks = reason == kStartsRanks;
    program.remedy = start_without(behind);
    const bool is_command = name == "accelerate" && has(behind) && words_[behind] == "launch";
    if (is_command || name == "accelerate-launch" || name == "accelerate.commands.launch") {
      const auto options = read_accelerate_options(words_from(behind), place_.nodes);
      program.is_stuck = !options.conflict.empty();
      if (program.is_stuck) program.reason = cat({options.conflict, ": ", kWouldHang});
    }
    if (name == "sudo" && sudo_closes_environment(words_from(behind)))
      program.closed = describe_closed_environment("sudo", "");
    return program;
  }

  std::span<const std::string> words_from(std::size_t k) const {
    return std::span(words_).subspan(std::min(k, words_.size()));
  }

  // "python3 train.py" of `accelerate launch train.py` and `mpirun python3 train.py`; empty: no program is clear.
  std::string program_behind(std::size_t k) const {
    for (; has(k) && k <= kMostWords; ++k) {
      const auto type = is_path(k) ? type_of(find(k)) : FileType::kUnseen;
      if (is_python_script(words_[k])) return cat({"python3 ", words_[k], has(k + 1) ? " ..." : ""});
      if (type == FileType::kElf || type == FileType::kPython) return cat({words_[k], has(k + 1) ? " ..." : ""});
      if (!is_python(name_at(k))) continue;
      const auto command = python_at(k);
      const auto last = k + std::max(command.script, command.module.empty() ? 0 : command.arguments - 1);
      if (last == k || !has(last)) return {};
      const auto text = join(std::span(words_).subspan(k, last - k + 1), " ");
      return cat({text, has(last + 1) ? " ..." : ""});
    }
    return {};
  }

  std::string start_without(std::size_t k) const {
    const auto program = program_behind(k);
    constexpr std::string_view kStart = "start your program with srun itself";
    if (program.empty()) return std::string(kStart);
    return cat(
        {kStart, ": srun ", place_.tasks > place_.nodes.count ? "" : "--ntasks-per-node=N ", printable(program)});
  }

  // Judges a word by its name alone, except for Python's.
  std::optional<Program> judge_name(std::size_t k) const {
    const auto name = name_at(k);
    if (auto program = judge_by_site(name, k + 1)) return program;
    if (name == "slurm-bootstrap") return judged(K::kTraining, name, " is a compiled program");
    if (is_torchrun(k)) return judge_torchrun(k + 1);
    const auto reason = is_users_file(words_[k]) ? std::string_view() : launcher_reason(name);
    // torchrun_jsc and torchrun-2.9 have torchrun's own options.
    if (name.starts_with("torchrun") && !reason.empty() && type_of(find(k)) == FileType::kPython) {
      return judge_torchrun(k + 1);
    }
    if (is_tool(k)) return std::nullopt;
    if (!reason.empty()) return judge_launcher(name, reason, k + 1);
    if (is_shell(name)) return judged(K::kShell, name, " is a shell: the plugin does not set up what a shell starts");
    if (is_interpreter(name))
      return judged(K::kScript, name, " runs a script: the plugin sets up compiled programs and Python");
    return std::nullopt;
  }

  // On one node torchrun has no other node to find.
  Program judge_torchrun(std::size_t arguments) const {
    const auto& nodes = place_.nodes;
    const auto options = read_torchrun_options(words_from(arguments), place_.environment, nodes);
    if (options.first.empty()) return {K::kTorchrun, "torchrun", cat({"torchrun", kStartsRanks})};
    Program program{K::kLauncher, "torchrun", cat({"the user set ", quote(options.first, 40), " for torchrun"})};
    program.is_stuck = !options.conflict.empty();
    if (program.is_stuck) program.reason = cat({options.conflict, ": ", kWouldHang});
    if (nodes.count > 1) program.remedy = options.remedy;
    return program;
  }

  Program judge_module(std::string_view name, std::size_t arguments) const {
    if (auto program = judge_by_site(name, arguments)) return std::move(*program);
    if (is_torchrun_module(name)) return judge_torchrun(arguments);
    const auto reason = launcher_module_reason(name);
    if (!reason.empty()) return judge_launcher(name, reason, arguments);
    return judged(K::kTraining, name, " is a Python module");
  }

  PythonCommand python_at(std::size_t k) const {
    return read_python(words_.size() - k, [&](std::size_t i) { return std::string_view(words_[k + i]); });
  }

  Program judge_python(std::size_t k) const {
    const auto command = python_at(k);
    if (!command.module.empty()) return judge_module(command.module, k + command.arguments);
    const auto script = k + command.script;
    if (command.script == 0 || words_[script] == "-") return judged(K::kTraining, name_at(k), " runs Python code");
    auto named = judge_name(script);
    if (named && (named->kind == K::kLauncher || named->kind == K::kTorchrun)) return std::move(*named);
    const auto reason = launcher_reason(name_at(script));  // python3 /opt/conda/bin/conda
    if (!reason.empty() && !is_users_file(words_[script])) return judge_launcher(name_at(script), reason, script + 1);
    return judged(K::kTraining, name_at(script), " is a Python script");
  }

  // Judges the first word by its file: neither its name nor a later word has decided.
  Program judge_first(const ProgramHead& file) const {
    const auto name = name_at(0);
    const auto type = type_of(file);
    if (type == FileType::kElf) return judged(K::kTraining, name, " is a compiled program");
    if (type == FileType::kPython) return judged(K::kTraining, name, " is a Python script");
    if (type == FileType::kScript) return judge_script(name, *file);
    if (type == FileType::kOther) return judged(K::kScript, name, " is of a file type that srun does not know");
    const auto shown = type == FileType::kImage ? cat({"into the image ", quote(name, 60)}) : quote(words_[0], 60);
    return {K::kUnseen, std::string(name), cat({"srun cannot see ", shown})};
  }

  static Program judge_script(std::string_view name, std::string_view head) {
    const auto line = trim(head.substr(2, head.find('\n') - 2));
    return judged(K::kScript, name, cat({" is a script for ", quote(file_name_of(split(line, ' ')[0]), 40)}));
  }

  std::optional<Program> judge_word(std::size_t k) {
    const std::string_view word = words_[k];
    if (word.starts_with("PATH=")) search_.set_path(word.substr(5));
    if (is_option(word)) note_closing(word);
    if (word.empty() || is_option(word) || is_assignment(word)) return std::nullopt;
    const bool is_behind = is_behind_option(k);
    if (is_behind) note_option(words_[k - 1], word);
    const bool takes_modules = tool_of(entered_) == Tool::kPython || entered_ == "uv";
    if (takes_modules && (words_[k - 1] == "-m" || words_[k - 1] == "--module"))
      return as_argument(judge_module(word, k + 1));
    if (is_python(name_at(k))) return judge_python_word(k, is_behind);
    if (auto named = judge_name(k)) return judge_named(k, std::move(*named), is_behind);
    if (is_tool(k)) enter(name_at(k));
    if (is_tool(k) || (!candidate_ && is_subcommand(word))) return std::nullopt;
    has_operand_ = true;
    operands_ = is_behind && operands_ == 0 ? 1 : 2;
    return judge_file(k, is_behind);
  }

  // An unknown program may use its arguments in any way, so its shape alone makes it no world.
  Program as_argument(Program program) const {
    const bool is_sure = tool_ != Tool::kNone && !candidate_;
    if (is_sure || (program.kind != K::kLauncher && program.kind != K::kShell)) return program;
    auto other =
        judged(K::kScript, candidate_ ? candidate_->name : name_at(0), cat({" may start ", quote(program.name, 40)}));
    if (program.kind == K::kLauncher) other.remedy = "use --bootstrap=on if it does not";
    return other;
  }

  std::optional<Program> judge_named(std::size_t k, Program named, bool is_behind) {
    if (named.kind == K::kTraining && is_behind)
      candidate_ = std::move(named);
    else if (named.kind == K::kTraining || is_program(k, named.kind, is_behind))
      return as_argument(std::move(named));
    return std::nullopt;
  }

  // True if the name of a shell, an interpreter or a launcher is a program and not an argument.
  bool is_program(std::size_t k, ProgramKind kind, bool is_behind) const {
    const auto name = name_at(k);
    if (has_word(place_.launchers, name, ',')) return true;
    if (is_program_sure_ && !is_clear_name(name)) return false;
    if (!is_behind) return true;
    const auto next = k + 1 + (has(k + 1) && words_[k + 1] == "--" ? 1 : 0);
    const bool is_last = !has(next);
    const bool has_options = !is_last && is_option(words_[next]);
    const bool is_of_tool = tool_ != Tool::kNone && !is_program_sure_;
    // --backend ray --epochs 3
    if (!is_of_tool && !is_clear_name(name) && (is_last || has_options) && words_[k - 1].starts_with("--"))
      return false;
    if (name.starts_with("torchrun")) return has_options || (!is_last && is_python_script(words_[next]));
    if (is_last || has_options) return true;
    // A framework's launcher does not run a Python interpreter, and a shell does not run a compiled program.
    if (kind == K::kLauncher) return runs_commands(name) || !(is_python(name_at(next)) || is_torchrun(next));
    return tool_ != Tool::kContainer && may_be_script(next);
  }

  // True if a shell may run this word as a script. Behind a tool, a bare word that is no file is no script.
  bool may_be_script(std::size_t k) const {
    const auto name = name_at(k);
    if (is_python(name) || is_python_script(name) || is_torchrun(k) || is_tool(k)) return false;
    if (!is_path(k)) return tool_ == Tool::kNone || name.find('.') != name.npos || search_.find_here(words_[k]);
    const auto type = type_of(find(k));
    return type != FileType::kElf && type != FileType::kPython;
  }

  // Python runs no shell and no script of another language: before one of these, "python3" is a value. Behind an option
  // it counts as a program if the next words are Python's.
  std::optional<Program> judge_python_word(std::size_t k, bool is_behind) {
    has_operand_ = true;
    auto program = judge_python(k);
    const auto command = python_at(k);
    if (program.kind != K::kTraining) return as_argument(std::move(program));
    bool is_value = is_behind;
    bool may_be_program = tool_ != Tool::kContainer;
    if (command.script != 0) {
      const auto script = k + command.script;
      const auto name = name_at(script);
      const auto type = type_of(find(script));
      const bool is_pythons = type == FileType::kPython || type == FileType::kOther;
      const bool is_others =
          is_shell(name) || is_interpreter(name) || type == FileType::kScript || name.ends_with(".sh");
      is_value = is_others || (is_behind && !is_python_script(name));
      may_be_program = may_be_program && is_pythons;
    } else if (!command.module.empty()) {
      is_value = is_behind && !is_identifier(command.module);
      may_be_program = false;
    } else if (has(k + 2) && words_[k + 1].ends_with('c') && words_[k + 2].find_first_of(" (;=") != std::string::npos) {
      is_value = false;  // -c 'import torch'
    }
    if (!is_value) return program;
    if (may_be_program) candidate_ = std::move(program);
    return std::nullopt;
  }

  std::optional<Program> judge_file(std::size_t k, bool is_behind) {
    if (is_program_sure_ && !is_path(k)) return std::nullopt;
    const auto name = name_at(k);
    const auto file = find(k);
    const auto type = type_of(file);
    if (type == FileType::kScript) return judge_script(name, *file);
    const bool is_script = is_python_script(name);
    if (!is_script && type != FileType::kElf && type != FileType::kPython) return std::nullopt;
    if (tool_ == Tool::kContainer && (is_behind || !is_script)) return std::nullopt;
    // Behind an option this word is a value if the next word may be the program.
    if (is_behind && has(k + 1) && !is_option(words_[k + 1]) && is_unseen(k + 1, is_script)) return std::nullopt;
    if (is_program_sure_) return std::nullopt;
    is_program_sure_ = !is_behind;
    candidate_ = judged(K::kTraining, name, type == FileType::kElf ? " is a compiled program" : " is a Python script");
    return std::nullopt;
  }

  bool is_unseen(std::size_t k, bool also_bare) const {
    const auto name = name_at(k);
    const bool is_known = is_python(name) || is_python_script(name) || is_tool(k) || judge_name(k);
    return (also_bare || is_path(k)) && !is_known && !find(k);
  }

  std::vector<std::string> words_;
  const ProgramPlace& place_;
  ProgramSearch search_;
  Tool tool_ = Tool::kNone;
  bool has_operand_ = false;          // a tool has words that may name its program
  bool is_program_sure_ = false;      // the candidate is no option's value
  std::string_view entered_;          // the last tool
  int operands_ = 0;                  // behind it: 1 may be the value of an option
  std::string closed_;                // see Program
  std::optional<Program> candidate_;  // the program, unless a later word is one that is not set up
};

}  // namespace

Program classify_program(std::span<const std::string> words, const ProgramPlace& place) {
  return Scan(words, place).judge();
}

ProgramKind kind_by_words(std::span<const std::string> words, const Environment& environment, std::uint32_t nodes) {
  const auto read_none = [](const std::string&) -> ProgramHead { return std::nullopt; };
  return classify_program(words, {.environment = environment, .read_head = read_none, .nodes = {.count = nodes}}).kind;
}

}  // namespace bootstrap
