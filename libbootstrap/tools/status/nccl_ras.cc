// NCCL's RAS: asks a rank of the step what NCCL knows of all ranks. Only for `--nccl`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/nccl_ras.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/util/text.h"
#include "probe/files.h"
#include "tools/check/check_socket.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kRasLimit(4);
constexpr std::size_t kMaxAnswer = std::size_t{64} << 10;

// Each release before `fixed` may end the program that is asked.
struct KnownCrash {
  std::array<unsigned, 3> fixed;
  std::string_view report;
};

// Reports of NVIDIA/nccl on GitHub. 1762: fixed in 2.29.2. 2346: seen with 2.29.7, open; a fix in 2.29 is not known.
constexpr auto kCrashes =
    std::to_array<KnownCrash>({{{2, 29, 2}, "NVIDIA/nccl issue 1762"}, {{2, 30, 0}, "NVIDIA/nccl issue 2346"}});
constexpr std::array<unsigned, 3> kFirstWithRas{2, 24, 0};

bool parse_version(std::string_view text, std::array<unsigned, 3>& version) {
  const auto words = split(text.substr(0, text.find_first_not_of("0123456789.")), '.');
  if (words.size() != version.size()) return false;
  for (std::size_t i = 0; i < version.size(); ++i) {
    const auto number = parse_unsigned(words[i], 999);
    if (!number) return false;
    version[i] = static_cast<unsigned>(*number);
  }
  return true;
}

// The host name has an address of IPv6, too, and NCCL listens on one of them.
Descriptor connect_to_ras(std::uint64_t port, Deadline deadline) {
  const auto addresses = resolve("localhost", static_cast<std::uint16_t>(port), deadline);
  if (!addresses) return Descriptor();
  for (const auto& address : *addresses) {
    if (auto socket = connect_to(address, deadline); socket.is_open()) return socket;
  }
  return Descriptor();
}

std::string read_answer(const Descriptor& socket, Deadline deadline) {
  std::string answer;
  while (answer.size() < kMaxAnswer) {
    pollfd wait{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, milliseconds_until(deadline)) != 1) break;
    std::array<char, 4096> part;
    const auto count = ::recv(socket.get(), part.data(), part.size(), 0);
    if (count <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(count));
  }
  return answer;
}

}  // namespace

std::string refuse_ras(std::string_view version, std::uint64_t port) {
  const auto by_hand = cat({"ask by hand on that node: ncclras --port ", std::to_string(port), " --verbose"});
  std::array<unsigned, 3> number{};
  if (!parse_version(version, number)) {
    return cat({"NCCL's RAS is not asked, because the release of NCCL is unknown and some releases end when asked; ",
                by_hand});
  }
  if (number < kFirstWithRas) return cat({"NCCL ", version, " has no RAS; it came with 2.24"});
  for (const auto& crash : kCrashes) {
    if (number >= crash.fixed) continue;
    return cat({"NCCL's RAS is not asked, because NCCL ", version, " may end the program when asked (", crash.report,
                "); ", by_hand});
  }
  return "";
}

std::string ask_ras(const std::vector<RankSight>& ranks, std::string_view node) {
  const auto rank =
      std::find_if(ranks.begin(), ranks.end(), [](const RankSight& sight) { return sight.ras_port != 0; });
  if (rank == ranks.end()) {
    return cat({"no rank of ", node, " listens for NCCL's RAS; NCCL 2.24 and later do once a communicator exists"});
  }
  auto refusal = refuse_ras(rank->nccl_version, rank->ras_port);
  if (!refusal.empty()) return refusal;
  const auto deadline = Deadline::clock::now() + kRasLimit;
  const auto socket = connect_to_ras(rank->ras_port, deadline);
  if (!socket.is_open() || !send_all(socket, "verbose status\n", deadline)) {
    return cat({"NCCL's RAS of ", node, " does not accept a connection at port ", std::to_string(rank->ras_port)});
  }
  const auto answer = read_answer(socket, deadline);
  return answer.empty() ? cat({"NCCL's RAS of ", node, " did not answer within 4 s"}) : answer;
}

}  // namespace bootstrap
