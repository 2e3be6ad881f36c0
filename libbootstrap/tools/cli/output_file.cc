// A file that is written whole or not at all.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/util/text.h"

namespace bootstrap {
namespace {

bool write_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

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
  const auto is_written = write_whole(descriptor, text) && ::fchmod(descriptor, 0644) == 0 && ::fsync(descriptor) == 0;
  const auto error = errno;
  const auto is_closed = ::close(descriptor) == 0;
  if (!is_written) errno = error;
  if (is_written && is_closed && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const auto refused = cannot();
  (void)::unlink(temporary.c_str());
  return refused;
}

}  // namespace bootstrap
