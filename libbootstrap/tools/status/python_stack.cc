// The stack of a Python process, as py-spy prints it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/python_stack.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/program/launcher_names.h"
#include "core/util/text.h"
#include "tools/check/child_output.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kLimit(2);
constexpr std::size_t kMaxFrames = 24;
constexpr std::size_t kMaxFrame = 200;

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
      frames.push_back(printable(trim(line).substr(0, kMaxFrame)));
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
  ChildOutput program({py_spy, "dump", "--nonblocking", "--pid", std::to_string(sight.pid)}, {.joins_errors = true});
  const auto output = program.read(std::chrono::steady_clock::now() + kLimit);
  sight.stack = parse_stack(output);
  if (sight.stack.empty()) sight.stack_trouble = explain_stack_failure(output, sight.node);
}

std::string own_frame(const std::vector<std::string>& stack) {
  const auto is_own = [](const std::string& frame) {
    return frame.find("-packages/") == std::string::npos && frame.find("(torch/") == std::string::npos &&
           frame.find("/lib/python") == std::string::npos && frame.find("<frozen") == std::string::npos;
  };
  const auto own = std::find_if(stack.begin(), stack.end(), is_own);
  return own != stack.end() ? *own : stack.empty() ? "" : stack.front();
}

}  // namespace bootstrap
