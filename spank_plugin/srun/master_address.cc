// In srun: finds out by which name or address the nodes reach the host of rank 0, and what the user's MASTER_ADDR is.
// SPDX-License-Identifier: Apache-2.0
#include "srun/master_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "core/hardware/network.h"
#include "core/plan/master_endpoint.h"
#include "core/step/host_list.h"
#include "srun/slurmctld_calls.h"
#include "srun/srun_facts.h"

namespace bootstrap {
namespace {

constexpr std::chrono::milliseconds kLookUpTime{1000};  // for one name

struct ResolvedName {
  std::string address = {};  // the first that is no loopback address; empty: there is none
  bool is_unknown = false;   // the name server does not know it, or there is none
  bool is_loopback = false;  // all its addresses are
};

ResolvedName look_up(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found);
  if (outcome != 0) {
    return {.is_unknown = outcome == EAI_NONAME || outcome == EAI_NODATA || outcome == EAI_AGAIN};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (; found != nullptr; found = found->ai_next) {
    std::array<char, NI_MAXHOST> text;
    const auto written =
        ::getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    const auto address = written == 0 ? parse_ip_address(text.data()) : std::nullopt;
    if (address && !is_loopback(*address)) return {.address = text.data()};
  }
  return {.is_loopback = true};
}

// A name server that does not answer in time changes nothing.
ResolvedName look_up_in_time(const std::string& name, Deadline deadline) {
  const auto own = std::min(deadline, std::chrono::steady_clock::now() + kLookUpTime);
  return call_in_time([name] { return look_up(name); }, own).value_or(ResolvedName{});
}

std::string node_address_in_time(const std::string& node, Deadline deadline) {
  return call_in_time([node] { return ask_node_address(node); }, deadline).value_or("");
}

}  // namespace

std::string host_of_first_rank(const std::vector<ComponentText>& components) {
  if (components.empty() || components.front().node_of_rank.empty()) return {};
  const auto hosts = parse_host_list(components.front().nodes);
  const auto first = components.front().node_of_rank.front();
  return hosts && first < hosts->size() ? (*hosts)[first] : std::string();
}

FoundAddresses find_addresses(const Environment& environment, const Settings& settings, Asked asked,
                              const std::vector<ComponentText>& components, Deadline deadline) {
  const auto& wanted = settings.address;
  const bool has_option = wanted.source >= Source::kEnvironment;
  // The user's own, to be looked up. It yields to an option.
  const std::string users(has_option ? "" : master_to_look_up(environment));
  FoundAddresses answers;
  const auto first = host_of_first_rank(components);
  if (first.empty()) return answers;
  std::size_t nodes = 0;
  for (const auto& component : components) nodes += component.tasks_per_node.size();
  const auto is_unusable = [nodes](const ResolvedName& name) {
    return name.is_unknown || (name.is_loopback && nodes > 1);
  };
  auto& of_node = answers.meeting.of_node;
  const bool needs_node = needs_node_address(wanted.value);
  if (needs_node) of_node = node_address_in_time(first, deadline);
  const auto master = fill_address(wanted.value, first, of_node);
  const auto named = look_up_in_time(master, deadline);
  answers.meeting.ours = named.address;
  if (has_option && asked != Asked::kUnasked && is_unusable(named)) answers.unusable_option = master;
  const bool is_lost = wanted.source == Source::kDefault && named.is_unknown;
  if (is_lost) {
    of_node = node_address_in_time(first, deadline);
    const auto numbered = of_node.empty() ? named : look_up_in_time(of_node, deadline);
    answers.meeting.ours = numbered.address;
    if (numbered.is_unknown) of_node.clear();
  }
  if ((is_lost || needs_node) && of_node.empty()) answers.host_without_address = first;
  if (users.empty()) return answers;
  const auto of_user = users == master ? named : look_up_in_time(users, deadline);
  if (users == first ? of_user.is_unknown : is_unusable(of_user)) {
    answers.unusable_master = users;
    return answers;
  }
  answers.meeting.users = of_user.address;
  answers.host_without_address.clear();  // the ranks meet at the user's address
  return answers;
}

}  // namespace bootstrap
