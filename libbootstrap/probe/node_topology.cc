// The topology of this node: from a file of the site, from /sys and /proc, or from hwloc.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/hardware/topology.h"
#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
NodeTopology read_node_topology(const std::string& file, const std::string& host) {
  if (file.empty()) return {read_sysfs_topology(""), "the kernel (/sys, /proc)"};
  const auto path = replaced(file, "%h", host);
  auto topology = read_topology_file(path);
  if (topology) return {std::move(*topology), path};
  return {read_sysfs_topology(""), cat({"the kernel (/sys, /proc), because ", topology.error().message})};
}

namespace {

// Why the file is not trusted; empty: it is.
std::string distrust(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (auto reason = distrust_of_writers(status); !reason.empty()) return reason;
  if (static_cast<std::size_t>(status.st_size) > kMaxTopologyText) return "it is too large for a topology";
  return "";
}

}  // namespace

Result<Topology> read_topology_file(const std::string& path) {
  const auto cannot = [&path](ErrorCode code, std::string_view why) {
    return fail(code, cat({"cannot use the topology in ", quoted(path, 256), ": ", why}));
  };
  // A FIFO would block an open without O_NONBLOCK; for a regular file it changes nothing.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    const auto error = errno;
    return cannot(error == ENOENT ? ErrorCode::kMissing : ErrorCode::kUnavailable, std::strerror(error));
  }
  if (const auto reason = distrust(status); !reason.empty()) return cannot(ErrorCode::kInvalid, reason);
  const auto text = read_whole(file.get(), static_cast<std::size_t>(status.st_size));
  if (!text) return cannot(text.error().code, text.error().message);
  if (text->size() > static_cast<std::size_t>(status.st_size)) {
    return cannot(ErrorCode::kUnavailable, "it changed while it was read");
  }
  auto topology = parse_topology_text(*text);
  if (!topology) {
    return cannot(topology.error().code,
                  cat({topology.error().message, "; write it again with slurm-bootstrap topology"}));
  }
  return topology;
}

}  // namespace bootstrap
