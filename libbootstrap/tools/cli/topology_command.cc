// slurm-bootstrap topology: a machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/hardware/topology.h"
#include "core/util/result.h"
#include "core/util/text.h"
#include "probe/node_topology.h"
#include "tools/cli/command_line.h"

namespace bootstrap {
namespace {

struct TopologyOptions {
  std::string output;  // empty: standard output
  std::string xml;     // empty: this machine
};

// Replaces the file at once, with mode 0644: a step that starts meanwhile reads the old file or the new one, and only
// the owner can write to it.
Status replace_file(const std::string& path, std::string_view text) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalid, cat({"cannot write ", quoted(path, 256), ": it is not a regular file"}));
  }
  auto temporary = path + ".XXXXXX";
  const auto cannot = [&path] {
    return fail(ErrorCode::kUnavailable, cat({"cannot write ", quoted(path, 256), ": ", std::strerror(errno)}));
  };
  const auto descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return cannot();
  auto* const file = ::fdopen(descriptor, "w");
  const auto is_written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                          std::fflush(file) == 0 && ::fchmod(descriptor, 0644) == 0 && ::fsync(descriptor) == 0;
  const auto error = errno;
  const auto is_closed = file != nullptr && std::fclose(file) == 0;
  if (!is_written) errno = error;
  if (is_written && is_closed && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const auto refused = cannot();
  (void)::unlink(temporary.c_str());
  return refused;
}

Status write_out(const std::string& path, std::string_view text) {
  if (!path.empty()) return replace_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot write to standard output: ", std::strerror(errno)}));
}

int topology_command(const TopologyOptions& options) {
  const auto topology = options.xml.empty() ? hwloc_topology_of_machine() : hwloc_topology_of_xml(options.xml);
  const auto text = topology ? topology_text(*topology) : "";
  // Refuses a file that our own reader would refuse later, in the jobs.
  const auto read = topology ? parse_topology_text(text) : topology;
  const auto written = read ? write_out(options.output, text) : Status(fail(read.error()));
  return written ? 0 : complain(written.error().message);
}

}  // namespace

void add_topology(CLI::App& app, int& status) {
  const auto options = std::make_shared<TopologyOptions>();
  auto* const command =
      add_command(app, "topology",
                  "Prints which CPUs are near each GPU of this machine. The plugin reads the file with topology= in "
                  "plugstack.conf.",
                  "Examples:\n"
                  "  slurm-bootstrap topology\n"
                  "  slurm-bootstrap topology --output /etc/slurm/topology.txt\n"
                  "\n"
                  "Exit status:\n"
                  "  0  the topology is printed or written\n"
                  "  1  hwloc failed, or a file cannot be read or written\n"
                  "  2  the command line is wrong\n");
  command->add_option("--output", options->output, "Write to this file; readers see the old or the new one")
      ->type_name("FILE");
  command->add_option("--from", options->xml, "Describe the machine of this file of `lstopo --of xml`")
      ->type_name("FILE");
  command->callback([options, &status] { status = topology_command(*options); });
}

}  // namespace bootstrap
