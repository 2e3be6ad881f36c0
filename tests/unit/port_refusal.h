// Why a port cannot be reserved.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "probe/port_reservation.h"

namespace bootstrap {

inline constexpr const char* kInUse = "the port is already in use by another program";

inline std::string port_refusal(std::uint16_t port) {
  const auto reservation = PortReservation::take(port);
  return reservation ? "" : reservation.error().message;
}

}  // namespace bootstrap
