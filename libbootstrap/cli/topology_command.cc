// slurm-bootstrap topology: this machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#include "cli/topology_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
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

}  // namespace

int topology_command(const std::string& path) {
  const auto text = export_topology_xml();
  const auto written = text ? write_out(path, *text) : Status(fail(text.error()));
  if (written) return 0;
  (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", written.error().message.c_str());
  return 1;
}

}  // namespace bootstrap
