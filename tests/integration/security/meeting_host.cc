// The meeting of a node's ranks, at which no rank arrives: meeting_host SECONDS prints its socket's name, waits for one
// guest of its own user, and prints whether one connected.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "comm/pmix/node_sockets.h"

int main(int count, char** words) {
  if (count != 2) return 2;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[1]));
  const std::string name = "meeting_host." + std::to_string(::getpid());
  const auto meeting = bootstrap::NodeBarrier::open(name);
  for (const char byte : name) (void)std::printf("%02x", static_cast<unsigned char>(byte));
  (void)std::printf("\n");
  (void)std::fflush(stdout);
  (void)std::printf("%s\n", meeting.lead(1, deadline) ? "came" : "nobody came");
  return 0;
}
