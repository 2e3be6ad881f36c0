// What a probe writes down for the test that started it: its findings and its whole environment. Knows nothing of the
// code under test.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_INTEGRATION_PROBE_REPORT_H
#define TESTS_INTEGRATION_PROBE_REPORT_H

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace probe {

// "host", "node001": the '@' is put before the name, so that no variable of the environment can be meant.
using Findings = std::vector<std::pair<std::string, std::string>>;

inline std::string host_name() {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

inline std::string system_error(const std::string& what) { return what + ": " + std::strerror(errno); }

// "NAME=VALUE" with NUL in between; names with '@' are findings, all others the environment. Written under another name
// first, so that no test reads half of it.
inline bool write_report(const std::string& folder, const Findings& findings) {
  std::string text = "@host=" + host_name() + '\0';
  for (const auto& [name, value] : findings) text += "@" + name + "=" + value + '\0';
  for (char** entry = environ; *entry != nullptr; ++entry) text += std::string(*entry) + '\0';
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const auto name = folder + "/" + host_name() + "." + std::to_string(::getpid()) + "." + std::to_string(now);
  const int file = ::open((name + ".new").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return false;
  const bool is_written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return ::close(file) == 0 && is_written && ::rename((name + ".new").c_str(), (name + ".task").c_str()) == 0;
}

}  // namespace probe

#endif
