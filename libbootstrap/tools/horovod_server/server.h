// The server of Horovod's Gloo rendezvous: one thread that serves all ranks of a step, and ends with the step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tools/horovod_server/process_watch.h"
#include "tools/horovod_server/step_hosts.h"

namespace bootstrap {

struct ServeOptions {
  std::uint32_t ranks = 1;                        // of the step: what the server may hold grows with it
  const ProcessWatch* life = nullptr;             // the server ends with this process; must outlive the call
  const StepHosts* hosts = nullptr;               // others are turned away; must outlive the call; null: nobody is
  std::size_t max_connections = 2048;             // at once; more wait in the listener's queue
  std::chrono::milliseconds read_deadline{3000};  // Horovod's own; 408 after it
  std::chrono::milliseconds write_deadline{10000};
};

// For a step of so many ranks, of which each has one connection at a time, or a few.
std::size_t max_connections_for(std::uint32_t ranks);

// What the server holds at most, in bytes: the store, and requests that are being received, together.
std::size_t serve_memory(const ServeOptions& options);

// Serves until options.life has ended and returns 0; or returns errno, when the listener or poll(2) broke. Takes the
// listening socket over as it is, but does not close it. Writes nothing to standard output or error.
int serve(int listener, const ServeOptions& options);

}  // namespace bootstrap
