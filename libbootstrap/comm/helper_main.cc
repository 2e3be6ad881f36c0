// What a helper process does: it reads its request, serves it, answers and ends.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper_main.h"

#include <unistd.h>

#include <exception>

#include "comm/pmi/pmi1_helper.h"
#include "comm/process/helper_process.h"
#include "probe/read_environment.h"

namespace bootstrap {

void serve_as_helper() noexcept {
  try {
    const auto request = helper_socket::receive();
    if (request) serve_pmi1(*request, process_environment());
  } catch (const std::exception&) {
    // Without memory there is no answer, and the rank says so.
  }
  ::_exit(0);
}

}  // namespace bootstrap
