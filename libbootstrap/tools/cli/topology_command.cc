// slurm-bootstrap topology: a machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topology_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "core/hardware/topology_text.h"
#include "core/util/result.h"
#include "core/util/text.h"
#include "probe/hwloc_topology.h"
#include "tools/cli/output_file.h"

namespace bootstrap {
namespace {

Status write_out(const std::string& path, std::string_view text) {
  if (!path.empty()) return replace_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot write to standard output: ", std::strerror(errno)}));
}

}  // namespace

int topology_command(const TopologyOptions& options) {
  const auto topology = options.xml.empty() ? hwloc_topology_of_machine() : hwloc_topology_of_xml(options.xml);
  const auto text = topology ? topology_text(*topology) : "";
  // Nobody would look at a file that our own reader refuses until the jobs that need it run.
  const auto read = topology ? parse_topology_text(text) : topology;
  const auto written = read ? write_out(options.output, text) : Status(fail(read.error()));
  if (written) return 0;
  (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", written.error().message.c_str());
  return 1;
}

}  // namespace bootstrap
