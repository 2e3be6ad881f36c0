// Addresses, prefixes and routes of a node, and the one interface that its programs are to use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

// In network byte order; an IPv4 address takes the first four bytes.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  std::uint8_t bits = 32;  // 32 or 128

  bool operator==(const IpAddress&) const = default;
};

struct IpPrefix {
  IpAddress address;
  std::uint8_t length = 0;

  bool contains(const IpAddress& other) const;
  bool contains(const IpPrefix& other) const { return length <= other.length && contains(other.address); }
  bool operator==(const IpPrefix&) const = default;
};

std::optional<IpAddress> parse_ip_address(std::string_view text);  // "10.0.0.1" or "fd00::1"
std::optional<IpPrefix> parse_ip_prefix(std::string_view text);    // "10.0.0.0/16"; bits behind the length do not count
bool is_loopback(const IpAddress& address);                        // 127.0.0.0/8 or ::1
bool is_loopback_name(std::string_view name);                      // such an address, the any-address, or "localhost"

struct Route {
  std::string interface;
  IpPrefix to;
  std::uint32_t metric = 0;
  bool is_direct = true;  // no gateway: the interface has an address in `to`

  bool operator==(const Route&) const = default;
};

// The tables of /proc/net/route and /proc/net/ipv6_route (proc(5)). Lines that are not understood, routes that are
// down or refuse, and those of the loopback interface are skipped.
std::vector<Route> parse_ipv4_routes(std::string_view table);
std::vector<Route> parse_ipv6_routes(std::string_view table);

// The interface over which this node sends to `address`, which may be its own: the longest prefix, then the smallest
// metric. Rules for more than one table (ip-rule(8)) are not read.
std::optional<std::string> interface_to(const std::vector<Route>& routes, const IpAddress& address);

// The interface with an address in that network, or in a part of it.
std::optional<std::string> interface_in(const std::vector<Route>& routes, const IpPrefix& network);

// True if a program finds an interface to other nodes with the user's text. `interfaces`: of the node, without the
// loopback. Gloo takes whole names with commas between them, and needs each of them.
bool names_interface_for_gloo(std::string_view text, const std::vector<std::string>& interfaces);
// NCCL takes beginnings of names, whole names behind "=", and all but these behind "^".
bool names_interface_for_nccl(std::string_view text, const std::vector<std::string>& interfaces);

// The RDMA device behind a network interface, as UCX names it: "mlx5_0:1" behind "ib0".
struct RdmaPort {
  std::string interface;
  std::string device;
};

// What the setting `interface` holds.
struct InterfaceChoice {
  enum class Kind : std::uint8_t {
    kGloo,     // the one on the route to MASTER_ADDR, for Gloo alone, which by itself may take a wrong one
    kAuto,     // the same one for all programs that take the name of an interface
    kName,     // this one
    kNetwork,  // the one in this network
    kOff,
  };
  Kind kind = Kind::kGloo;
  std::string text = "gloo";  // as given

  bool operator==(const InterfaceChoice&) const = default;
};

std::optional<InterfaceChoice> parse_interface(std::string_view text);

// Returns nullopt for kOff, and if the route to `address` decides, but there is no address or no route. Fails if the
// node does not have the name or the network that the user set; the caller puts the setting's name in front.
Result<std::optional<std::string>> choose_interface(const InterfaceChoice& choice, const std::vector<Route>& routes,
                                                    std::string_view address, const std::string& host);

}  // namespace bootstrap
