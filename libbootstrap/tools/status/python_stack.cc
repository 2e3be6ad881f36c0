// The stack of a Python process, as py-spy prints it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/python_stack.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/program/program_names.h"
#include "core/util/text.h"
#include "tools/check/child_output.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kStackLimit(2);
constexpr std::size_t kMaxFrames = 24;
constexpr std::size_t kMaxFrame = 400;

// "all_reduce (/usr/lib/python3/dist-packages/torch/x.py:12)" is "all_reduce (torch/x.py:12)", and own code has its
// file name alone, behind the mark of own code.
std::string short_frame(std::string_view frame) {
  const auto open = frame.find(" (");
  if (open == std::string_view::npos) return printable(frame);
  const auto function = frame.substr(0, open + 2);
  const auto path = frame.substr(open + 2);
  for (const std::string_view folder : {"-packages/", "/lib/python3"}) {
    const auto at = path.rfind(folder);
    if (at == std::string_view::npos) continue;
    const auto rest = path.substr(at + folder.size());
    return printable(cat({function, folder.front() == '-' ? rest : rest.substr(rest.find('/') + 1)}));
  }
  const bool is_of_python = path.starts_with('<');
  return printable(cat({is_of_python ? "" : kOwnCode, function, path.substr(path.rfind('/') + 1)}));
}

}  // namespace

std::vector<std::string> parse_stack(std::string_view output) {
  std::vector<std::string> frames;
  std::vector<std::string> first_thread;
  bool is_main = false;
  for (const auto line : split(output, '\n')) {
    if (line.starts_with("Thread ")) {
      if (is_main) break;
      is_main = line.find("MainThread") != std::string_view::npos;
      if (is_main || first_thread.empty()) first_thread.swap(frames);
      frames.clear();
    } else if (line.starts_with("    ") && frames.size() < kMaxFrames) {
      frames.push_back(short_frame(trim(line).substr(0, kMaxFrame)));
    }
  }
  return is_main || first_thread.empty() ? frames : first_thread;
}

std::string explain_stack_failure(std::string_view output, std::string_view node) {
  if (output.find("Permission Denied") != std::string_view::npos ||
      output.find("ermission denied") != std::string_view::npos ||
      output.find("Operation not permitted") != std::string_view::npos) {
    return cat({"the kernel of ", node,
                " does not let py-spy read the process; an administrator can allow it with: sysctl "
                "kernel.yama.ptrace_scope=0"});
  }
  auto reason = trim(output.substr(0, output.find('\n')));
  return cat(
      {"py-spy shows no stack on ", node, ": ", reason.empty() ? "it did not answer within 2 s" : printable(reason)});
}

void add_stack(RankSight& sight, const std::string& py_spy) {
  if (!is_python(sight.program) && !is_python_script(sight.program) && sight.framework.empty()) return;
  if (::access(py_spy.c_str(), X_OK) != 0) {
    sight.stack_trouble = cat({py_spy, " is not on ", sight.node, "; install py-spy in a folder that all nodes share"});
    return;
  }
  ChildOutput program({py_spy, "dump", "--nonblocking", "--full-filenames", "--pid", std::to_string(sight.pid)},
                      {.joins_errors = true});
  const auto output = program.read(std::chrono::steady_clock::now() + kStackLimit);
  sight.stack = parse_stack(output);
  if (sight.stack.empty()) sight.stack_trouble = explain_stack_failure(output, sight.node);
}

std::string describe_stack(const std::vector<std::string>& stack) {
  const auto own =
      std::find_if(stack.begin(), stack.end(), [](const std::string& frame) { return frame.starts_with(kOwnCode); });
  if (own == stack.end()) return stack.front();
  const auto place = own->substr(kOwnCode.size());
  return own == stack.begin() ? place : cat({stack.front().substr(0, stack.front().find(" (")), ", called by ", place});
}

}  // namespace bootstrap
