// How this code starts as a program: its command line, and a copy of its file if that may be gone.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "comm/pmi/helper_process.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct LoadedFiles {
  std::uintptr_t own_code;
  bool is_own_program = false;  // this code is in the program's file, the first in the list
  bool is_first = true;
  std::string loader = {};
};

int look_at_file(dl_phdr_info* file, std::size_t /*size*/, void* found) {
  auto& files = *static_cast<LoadedFiles*>(found);
  const auto name = base_name(file->dlpi_name);
  if (name.starts_with("ld-") || name.starts_with("ld64.")) files.loader = file->dlpi_name;
  for (int i = 0; files.is_first && i < file->dlpi_phnum; ++i) {
    const auto& part = file->dlpi_phdr[i];
    const auto begin = file->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || files.own_code < begin || files.own_code >= begin + part.p_memsz) continue;
    files.is_own_program = true;
  }
  files.is_first = false;
  return 0;
}

// From the kernel: the loader has the name that a library was loaded with, which may be relative to a folder that the
// program has left.
std::string file_of(std::uintptr_t code) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  std::string file;
  char* line = nullptr;
  std::size_t size = 0;
  while (maps != nullptr && file.empty() && ::getline(&line, &size, maps) > 0) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const std::string_view text = trim(std::string_view(line, std::strcspn(line, "\n")));
    const auto first = std::from_chars(text.begin(), text.end(), begin, 16);
    if (first.ptr == text.end() || std::from_chars(first.ptr + 1, text.end(), end, 16).ec != std::errc{}) continue;
    if (code >= begin && code < end) file = text.substr(std::min(text.find('/'), text.size()));
  }
  std::free(line);
  if (maps != nullptr) (void)std::fclose(maps);
  return file;
}

// The file of the library. A mapping keeps the contents after the name is gone, without a descriptor.
std::string_view map_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0 || facts.st_size <= 0) return {};
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  return bytes == MAP_FAILED ? std::string_view() : std::string_view(static_cast<const char*>(bytes), size);
}

std::optional<Descriptor> copy_to_memory(std::string_view bytes) {
  Descriptor copy(::memfd_create("libbootstrap", MFD_CLOEXEC));
  while (copy.is_open() && !bytes.empty()) {
    const auto written = ::write(copy.get(), bytes.data(), bytes.size());
    if (written <= 0 && errno != EINTR) return std::nullopt;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return copy.is_open() ? std::optional(std::move(copy)) : std::nullopt;
}

}  // namespace

Result<OwnProgram> own_program(const std::string& image_path) {
  const auto own_code = reinterpret_cast<std::uintptr_t>(&look_at_file);
  LoadedFiles files{.own_code = own_code};
  (void)::dl_iterate_phdr(look_at_file, &files);
  if (files.is_own_program) return OwnProgram{"/proc/self/exe", {"slurm-bootstrap", kHelperArgument}, {}};
  auto library = file_of(own_code);
  if (library.empty() || files.loader.empty()) {
    return fail(ErrorCode::kUnavailable, "the file of this library, or of its loader, is not known");
  }
  static std::mutex mutex;
  static std::string_view image;  // until the process ends
  const std::lock_guard lock(mutex);
  const bool is_gone = library.ends_with(" (deleted)");
  if (!is_gone && image.empty()) image = map_file(library);
  OwnProgram own{files.loader, {"slurm-bootstrap-helper", is_gone ? image_path : library}, {}};
  if (!is_gone) return own;
  auto copy = image.empty() ? std::nullopt : copy_to_memory(image);
  if (!copy) {
    return fail(ErrorCode::kUnavailable,
                "the file of libbootstrap was deleted or replaced after the program had loaded it");
  }
  own.image = std::move(*copy);
  return own;
}

}  // namespace bootstrap
