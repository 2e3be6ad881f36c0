// What other tools report on a node: the stacks of py-spy, the GPUs of nvidia-smi, and the answer of NCCL's RAS.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/node_look.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/program/program_names.h"
#include "core/util/text.h"
#include "tools/check/check_socket.h"
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

constexpr std::chrono::seconds kRasLimit(4);
constexpr std::size_t kMaxRasLines = 1024;

// Releases of NCCL as one number, 22403 for 2.24.3. Each before `fixed` may end the program that is asked.
struct KnownCrash {
  std::uint64_t fixed;
  std::string_view report;
};

// Reports of NVIDIA/nccl on GitHub. 1762: fixed in 2.29.2. 2346: seen with 2.29.7, open; a fix in 2.29 is not known.
constexpr auto kCrashes =
    std::to_array<KnownCrash>({{22902, "NVIDIA/nccl issue 1762"}, {23000, "NVIDIA/nccl issue 2346"}});
constexpr std::uint64_t kFirstWithRas = 22400;

std::optional<std::uint64_t> release_number(std::string_view version) {
  std::uint64_t number = 0;
  const auto words = split(version.substr(0, version.find_first_not_of("0123456789.")), '.');
  for (const auto word : words) {
    const auto part = parse_unsigned(word, 99);
    if (!part || words.size() != 3) return std::nullopt;
    number = number * 100 + *part;
  }
  return number;
}

}  // namespace

std::vector<std::string> parse_gpu_use(std::string_view gpus, std::string_view processes) {
  std::vector<std::string> lines;
  for (const auto process : split(processes, '\n')) {
    const auto pid_and_gpu = split(process, ',');
    for (const auto gpu : split(gpus, '\n')) {
      const auto fields = split(gpu, ',');
      if (pid_and_gpu.size() != 2 || fields.size() != 3 || trim(pid_and_gpu[1]) != trim(fields[0])) continue;
      lines.push_back(join(std::vector{pid_and_gpu[0], trim(fields[1]), trim(fields[2]), trim(fields[0])}, " "));
    }
  }
  return lines;
}

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

void add_stack(RankState& rank, const std::string& py_spy) {
  if (!is_python(rank.program) && !is_python_script(rank.program) && rank.framework.empty()) return;
  if (::access(py_spy.c_str(), X_OK) != 0) {
    rank.stack_trouble = cat({py_spy, " is not on ", rank.node, "; install py-spy in a folder that all nodes share"});
    return;
  }
  ChildOutput program({py_spy, "dump", "--nonblocking", "--full-filenames", "--pid", std::to_string(rank.pid)},
                      {.joins_errors = true});
  const auto output = program.read(std::chrono::steady_clock::now() + kStackLimit);
  rank.stack = parse_stack(output);
  if (rank.stack.empty()) rank.stack_trouble = explain_stack_failure(output, rank.node);
}

std::string describe_stack(const std::vector<std::string>& stack) {
  const auto own =
      std::find_if(stack.begin(), stack.end(), [](const std::string& frame) { return frame.starts_with(kOwnCode); });
  if (own == stack.end()) return stack.front();
  const auto place = own->substr(kOwnCode.size());
  return own == stack.begin() ? place : cat({stack.front().substr(0, stack.front().find(" (")), ", called by ", place});
}

std::string refuse_ras(std::string_view version, std::uint64_t port) {
  const auto by_hand = cat({"ask by hand on that node: ncclras --port ", std::to_string(port), " --verbose"});
  const auto release = release_number(version);
  if (!release) {
    return cat({"NCCL's RAS is not asked, because the release of NCCL is unknown and some releases end when asked; ",
                by_hand});
  }
  if (*release < kFirstWithRas) return cat({"NCCL ", version, " has no RAS; it came with 2.24"});
  const auto crash =
      std::find_if(kCrashes.begin(), kCrashes.end(), [&](const KnownCrash& one) { return *release < one.fixed; });
  return crash == kCrashes.end() ? ""
                                 : cat({"NCCL's RAS is not asked, because NCCL ", version,
                                        " may end the program when asked (", crash->report, "); ", by_hand});
}

std::vector<std::string> ask_ras(const std::vector<RankState>& ranks, std::string_view node) {
  const auto rank = std::find_if(ranks.begin(), ranks.end(), [](const RankState& one) { return one.ras_port != 0; });
  if (rank == ranks.end()) {
    return {cat({"no rank of ", node, " listens for NCCL's RAS; NCCL 2.24 and later do once a communicator exists"})};
  }
  if (auto refusal = refuse_ras(rank->nccl_version, rank->ras_port); !refusal.empty()) return {std::move(refusal)};
  const auto deadline = Deadline::clock::now() + kRasLimit;
  Descriptor socket;
  // The host name has an address of IPv6, too, and NCCL listens on one of them.
  const auto addresses = resolve("localhost", static_cast<std::uint16_t>(rank->ras_port), deadline);
  for (std::size_t i = 0; addresses && i < addresses->size() && !socket.is_open(); ++i) {
    socket = connect_to((*addresses)[i], deadline);
  }
  if (!socket.is_open() || !send_all(socket, "verbose status\n", deadline)) {
    return {cat({"NCCL's RAS of ", node, " does not accept a connection at port ", std::to_string(rank->ras_port)})};
  }
  std::vector<std::string> lines;
  std::string rest;
  while (lines.size() < kMaxRasLines) {
    auto line = receive_line(socket, rest, deadline);
    if (!line) break;
    lines.push_back(std::move(*line));
  }
  if (lines.empty()) lines = {cat({"NCCL's RAS of ", node, " did not answer within 4 s"})};
  return lines;
}

}  // namespace bootstrap
