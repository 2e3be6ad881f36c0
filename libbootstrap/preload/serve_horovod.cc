// Where no plugin does it: the server at which Horovod's ranks meet, started by rank 0 before `main`.
// SPDX-License-Identifier: Apache-2.0
#include "preload/serve_horovod.h"

#include <dlfcn.h>
#include <unistd.h>

#include "core/util/text.h"
#include "probe/file_permissions.h"
#include "tools/horovod_server/listener.h"
#include "tools/horovod_server/start.h"

namespace bootstrap {

std::string find_rendezvous_program() {
  constexpr std::string_view kName = "slurm-bootstrap-rendezvous";
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&find_rendezvous_program), &self) == 0 || self.dli_fname == nullptr) return {};
  const std::string_view library = self.dli_fname;
  const auto folder = library.substr(0, library.rfind('/') + 1);
  // Copied to a home together, or installed: PREFIX/lib/x86_64-linux-gnu and PREFIX/lib64 to PREFIX/libexec.
  for (const std::string_view place : {"", "../libexec/slurm-bootstrap/", "../../libexec/slurm-bootstrap/"}) {
    auto program = cat({folder, place, kName});
    if (may_access(program, X_OK)) return program;
  }
  return {};
}

Status serve_horovod(const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                     const std::string& program) {
  const auto file = open_program(program);
  if (!file) return fail(file.error());
  auto listener = open_listener({&*plan.served_port, 1}, facts.master_ip);
  if (!listener) return fail(listener.error());
  return start_server({.program = program,
                       .program_file = file->get(),
                       .listener = listener->socket.get(),
                       .step = to_string(facts.id),
                       .ranks = facts.layout.size(),
                       .while_process = ::getpid(),
                       .hosts = hosts_of_ranks(facts, settings, plan)});
}

}  // namespace bootstrap
