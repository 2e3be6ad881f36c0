// Descriptors that close with their owner, permissions of files, and small files of /proc and /sys.
// SPDX-License-Identifier: Apache-2.0
#include "probe/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "core/util/text.h"

namespace bootstrap {

Result<std::string> read_whole(int descriptor, std::size_t max) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() <= max) {
    const auto count = ::read(descriptor, buffer.data(), buffer.size());
    if (count == 0) break;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR) return fail(ErrorCode::kUnavailable, std::strerror(errno));
  }
  return text;
}

std::string distrust_of_writers(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return cat({"it belongs to uid ", std::to_string(status.st_uid), "; change its owner to root with chown"});
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  return "users other than its owner can write to it; forbid that with chmod go-w";
}

bool may_access(const std::string& path, int how) { return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0; }

std::string FileTree::read(std::string_view path) const {
  // Longer than any list of CPUs, and than the text of NVIDIA's driver about a GPU.
  constexpr std::size_t kMaxFile = std::size_t{128} << 10;
  const Descriptor file(::open(cat({root_, path}).c_str(), O_RDONLY | O_CLOEXEC));
  auto text = file.is_open() ? read_whole(file.get(), kMaxFile).value_or("") : std::string();
  if (text.size() > kMaxFile) text.clear();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

CpuSet FileTree::read_cpus(std::string_view path) const { return CpuSet::parse_list(read(path)).value_or(CpuSet()); }

std::vector<std::string> FileTree::names_in(std::string_view path) const {
  constexpr std::size_t kMaxEntries = 65536;
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(cat({root_, path}).c_str()), ::closedir);
  if (folder == nullptr) return names;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own, for which glibc's readdir is safe.
  while (const auto* const entry = ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    if (names.size() == kMaxEntries) break;
  }
  return names;
}

std::string FileTree::link_name(std::string_view path) const {
  std::array<char, PATH_MAX> target;
  const auto size = ::readlink(cat({root_, path}).c_str(), target.data(), target.size());
  if (size <= 0) return "";
  const std::string_view text(target.data(), static_cast<std::size_t>(size));
  return std::string(text.substr(text.rfind('/') + 1));
}

}  // namespace bootstrap
