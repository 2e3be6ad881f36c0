// slurm-bootstrap topology: this machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#include "cli/topology_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "cli/output_file.h"
#include "core/result.h"
#include "core/text.h"
#include "probe/topology.h"

namespace bootstrap {
namespace {

Status write_out(const std::string& path, std::string_view text) {
  if (!path.empty()) return replace_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot write to standard output: ", std::strerror(errno)}));
}

int topology(const std::string& path) {
  const auto text = export_topology_xml();
  const auto written = text ? write_out(path, *text) : Status(fail(text.error()));
  if (written) return 0;
  (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", written.error().message.c_str());
  return 1;
}

}  // namespace

void add_topology_command(CLI::App& app, int& status) {
  const auto path = std::make_shared<std::string>();
  auto* const command = app.add_subcommand(
      "topology",
      "Prints which CPUs each GPU of this machine is near to, in the XML of hwloc, for topology= of the plugin");
  command->add_option("--output", *path, "Write it to this file, in one step")->type_name("FILE");
  command->callback([path, &status] { status = topology(*path); });
}

}  // namespace bootstrap
