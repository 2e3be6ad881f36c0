// What a helper process does: it reads its request, serves it, answers and ends.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper_main.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "comm/pmi/pmi1_helper.h"
#include "comm/pmix/mpirun_hosts.h"
#include "comm/process/helper_process.h"
#include "probe/read_environment.h"

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kTimeForHosts{8};  // ranks of the node that are not preloaded never come
constexpr unsigned kLifeForHosts = 60;  // seconds: one that is late for its rank takes leave of the server all the same

void serve_hosts(const Environment& environment) {
  (void)::alarm(kLifeForHosts);
  auto hosts = ask_mpirun_hosts(environment, std::chrono::steady_clock::now() + kTimeForHosts);
  std::vector<std::string> answer{hosts ? kHostsKnown : "unknown"};
  if (!hosts) answer.push_back(hosts.error().message);
  if (hosts) answer.insert(answer.end(), hosts->begin(), hosts->end());
  helper_socket::send(answer);
}

void serve() {
  const auto request = helper_socket::receive();
  if (!request || request->empty()) return;
  if (request->front() == kHostsRequest) serve_hosts(process_environment());
  if (request->front() == kPmi1Request) serve_pmi1(*request, process_environment());
}

}  // namespace

void serve_as_helper() noexcept {
  try {
    serve();
  } catch (const std::exception&) {
    // Without memory there is no answer, and the rank says so.
  }
  ::_exit(0);
}

}  // namespace bootstrap
