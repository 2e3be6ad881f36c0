// Addresses, prefixes and routes of a node, and the one interface that its programs are to use.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/network.h"

#include <arpa/inet.h>

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint32_t kRouteUp = 0x1;        // RTF_UP of linux/route.h
constexpr std::uint32_t kGateway = 0x2;        // RTF_GATEWAY
constexpr std::uint32_t kRouteReject = 0x200;  // RTF_REJECT
constexpr std::size_t kMaxRoutes = 4096;       // more than a compute node has; a router may have more
constexpr std::size_t kMaxInterfaceName = 15;  // IFNAMSIZ - 1

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (auto word : split(line, ' ')) {
    for (const auto part : split(word, '\t')) {
      if (!part.empty()) found.push_back(part);
    }
  }
  return found;
}

std::optional<IpAddress> address_of_digits(std::string_view digits) {
  IpAddress address{.bytes = {}, .bits = 128};
  if (digits.size() != 2 * address.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < address.bytes.size(); ++i) {
    const auto byte = parse_hex<std::uint8_t>(digits.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    address.bytes[i] = *byte;
  }
  return address;
}

bool is_usable(std::uint32_t flags, std::string_view interface) {
  return (flags & kRouteUp) != 0 && (flags & kRouteReject) == 0 && interface != "lo";
}

template <class Parse>
std::vector<Route> parse_lines(std::string_view table, Parse parse) {
  std::vector<Route> routes;
  for (const auto line : split(table, '\n')) {
    if (auto route = parse(words(line))) routes.push_back(std::move(*route));
    if (routes.size() == kMaxRoutes) break;
  }
  return routes;
}

// Iface Destination Gateway Flags RefCnt Use Metric Mask ...
std::optional<Route> parse_ipv4_line(const std::vector<std::string_view>& fields) {
  if (fields.size() < 8) return std::nullopt;
  const auto to = parse_hex<std::uint32_t>(fields[1]);
  const auto flags = parse_hex<std::uint32_t>(fields[3]);
  const auto metric = parse_unsigned<std::uint32_t>(fields[6]);
  const auto mask = parse_hex<std::uint32_t>(fields[7]);
  if (!to || !flags || !metric || !mask || !is_usable(*flags, fields[0])) return std::nullopt;
  // The kernel prints the four bytes of an address as one number of the machine.
  IpPrefix prefix{.address = {}, .length = static_cast<std::uint8_t>(__builtin_popcount(*mask))};
  std::copy_n(reinterpret_cast<const std::uint8_t*>(&*to), sizeof *to, prefix.address.bytes.begin());
  return Route{std::string(fields[0]), prefix, *metric, (*flags & kGateway) == 0};
}

// Destination and its length, source and its length, next hop, metric, reference count, use count, flags, interface.
std::optional<Route> parse_ipv6_line(const std::vector<std::string_view>& fields) {
  if (fields.size() < 10) return std::nullopt;
  const auto to = address_of_digits(fields[0]);
  const auto length = parse_hex<std::uint32_t>(fields[1]);
  const auto metric = parse_hex<std::uint32_t>(fields[5]);
  const auto flags = parse_hex<std::uint32_t>(fields[8]);
  if (!to || !length || *length > 128 || !metric || !flags || !is_usable(*flags, fields[9])) return std::nullopt;
  return Route{std::string(fields[9]), {*to, static_cast<std::uint8_t>(*length)}, *metric, (*flags & kGateway) == 0};
}

// "eth0, ib0": the node's interfaces, for messages.
std::string interfaces_of(const std::vector<Route>& routes) {
  std::vector<std::string_view> names;
  for (const auto& route : routes) {
    if (std::find(names.begin(), names.end(), route.interface) == names.end()) names.emplace_back(route.interface);
  }
  return names.empty() ? "none" : join(names, ", ");
}

bool is_interface_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxInterfaceName && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '@' || c == '+';
         });
}

}  // namespace

bool IpPrefix::contains(const IpAddress& other) const {
  if (address.bits != other.bits) return false;
  for (std::size_t bit = 0; bit < length; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    if (((address.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::optional<IpAddress> parse_ip_address(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;  // C would see the end of the text there
  const std::string name(text);
  IpAddress address;
  if (::inet_pton(AF_INET, name.c_str(), address.bytes.data()) == 1) return address;
  address = {.bytes = {}, .bits = 128};
  if (::inet_pton(AF_INET6, name.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::optional<IpPrefix> parse_ip_prefix(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto address = parse_ip_address(text.substr(0, slash));
  if (!address) return std::nullopt;
  const auto length = parse_unsigned<std::uint8_t>(text.substr(slash + 1), address->bits);
  if (!length) return std::nullopt;
  return IpPrefix{*address, *length};
}

bool is_loopback_name(std::string_view name) {
  const auto address = parse_ip_address(name);
  if (address) return is_loopback(*address) || name == "0.0.0.0" || name == "::";
  return name == "localhost" || name.starts_with("localhost.") || name == "ip6-localhost" || name == "ip6-loopback";
}

bool is_loopback(const IpAddress& address) {
  if (address.bits == 32) return address.bytes[0] == 127;
  IpAddress own{.bytes = {}, .bits = 128};
  own.bytes.back() = 1;
  return address == own;
}

std::vector<Route> parse_ipv4_routes(std::string_view table) { return parse_lines(table, parse_ipv4_line); }
std::vector<Route> parse_ipv6_routes(std::string_view table) { return parse_lines(table, parse_ipv6_line); }

std::optional<std::string> interface_to(const std::vector<Route>& routes, const IpAddress& address) {
  const Route* best = nullptr;
  for (const auto& route : routes) {
    if (!route.to.contains(address)) continue;
    const bool is_better = best == nullptr || route.to.length > best->to.length ||
                           (route.to.length == best->to.length && route.metric < best->metric);
    if (is_better) best = &route;
  }
  return best == nullptr ? std::nullopt : std::optional(best->interface);
}

std::optional<std::string> interface_in(const std::vector<Route>& routes, const IpPrefix& network) {
  const Route* best = nullptr;
  for (const auto& route : routes) {
    // Every interface with IPv6 has a route to multicast addresses, which no network of a site contains.
    // A route within the network is better than one around it, and the narrowest is best.
    const bool is_around = route.to.contains(network) && (best == nullptr || best->to.contains(network));
    const bool fits = route.is_direct && route.to.length > 0 && (network.contains(route.to) || is_around);
    if (fits && (best == nullptr || route.to.length > best->to.length)) best = &route;
  }
  return best == nullptr ? std::nullopt : std::optional(best->interface);
}

bool names_interface_for_gloo(std::string_view text, const std::vector<std::string>& interfaces) {
  const auto names = split(text, ',');
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    return std::find(interfaces.begin(), interfaces.end(), name) != interfaces.end();
  });
}

bool names_interface_for_nccl(std::string_view text, const std::vector<std::string>& interfaces) {
  const bool is_without = text.starts_with('^');
  if (is_without) text.remove_prefix(1);
  const bool is_whole = text.starts_with('=');
  if (is_whole) text.remove_prefix(1);
  const auto names = split(text, ',');
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const std::string& interface) {
    const bool is_listed = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      name = name.substr(0, name.find(':'));  // a port may stand behind it
      return is_whole ? interface == name : !name.empty() && interface.starts_with(name);
    });
    return is_listed != is_without;
  });
}

std::optional<InterfaceChoice> parse_interface(std::string_view text) {
  using Kind = InterfaceChoice::Kind;
  const auto choice = [text](Kind kind) { return InterfaceChoice{kind, std::string(text)}; };
  if (text == "gloo") return choice(Kind::kGloo);
  if (text == "auto") return choice(Kind::kAuto);
  if (text == "off") return choice(Kind::kOff);
  if (parse_ip_prefix(text)) return choice(Kind::kNetwork);
  if (is_interface_name(text)) return choice(Kind::kName);
  return std::nullopt;
}

Result<std::optional<std::string>> choose_interface(const InterfaceChoice& choice, const std::vector<Route>& routes,
                                                    std::string_view address, const std::string& host) {
  using Kind = InterfaceChoice::Kind;
  if (choice.kind == Kind::kOff) return std::optional<std::string>();
  if (choice.kind == Kind::kName) {
    for (const auto& route : routes) {
      if (route.interface == choice.text) return std::optional(choice.text);
    }
  } else if (choice.kind == Kind::kNetwork) {
    if (auto found = interface_in(routes, *parse_ip_prefix(choice.text))) return found;
  } else {
    const auto target = parse_ip_address(address);
    return target && !is_loopback(*target) ? interface_to(routes, *target) : std::optional<std::string>();
  }
  return fail(ErrorCode::kMisplaced,
              cat({host, " has no such interface with an address; it has ", interfaces_of(routes),
                   "; use one of these, a network such as 10.0.0.0/8, or auto"}));
}

}  // namespace bootstrap
