// The program that the GPU tests start: writes down which GPUs' device nodes it can open, on which CPUs it may run, and
// what its environment was. Knows nothing of the code under test and connects to no rank.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "probe_report.h"

namespace {

constexpr int kMaxCpus = 4096;

// The numbers N of all /dev/nvidiaN, which are there also for who may not open them.
std::set<int> device_numbers() {
  std::set<int> numbers;
  DIR* const folder = ::opendir("/dev");
  if (folder == nullptr) return numbers;
  while (const dirent* const entry = ::readdir(folder)) {
    int number = 0;
    int length = 0;
    if (std::sscanf(entry->d_name, "nvidia%d%n", &number, &length) == 1 && entry->d_name[length] == '\0') {
      numbers.insert(number);
    }
  }
  ::closedir(folder);
  return numbers;
}

std::string listed(const std::set<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// Device nodes without a driver answer ENXIO where a real one would open, and a device cgroup returns EPERM before
// that. Any other answer means that the test bed is broken: it must not pass for either.
bool open_each(std::set<int>& open, std::set<int>& hidden) {
  for (const int number : device_numbers()) {
    const auto path = "/dev/nvidia" + std::to_string(number);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) ::close(file);
    if (file >= 0 || errno == ENXIO) {
      open.insert(number);
    } else if (errno == EPERM) {
      hidden.insert(number);
    } else {
      std::fprintf(stderr, "gpu_probe: %s\n", probe::system_error("open " + path).c_str());
      return false;
    }
  }
  return true;
}

std::set<int> allowed_cpus() {
  std::set<int> cpus;
  cpu_set_t* const mask = CPU_ALLOC(kMaxCpus);
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpus);
  if (::sched_getaffinity(0, size, mask) == 0) {
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask)) cpus.insert(cpu);
    }
  }
  CPU_FREE(mask);
  return cpus;
}

}  // namespace

// gpu_probe FOLDER
int main(int count, char** arguments) {
  const std::string folder = count > 1 ? arguments[1] : ".";
  std::set<int> open;
  std::set<int> hidden;
  if (!open_each(open, hidden)) return 1;
  if (!probe::write_report(folder,
                           {{"open", listed(open)}, {"hidden", listed(hidden)}, {"cpus", listed(allowed_cpus())}})) {
    std::fprintf(stderr, "gpu_probe: %s\n", probe::system_error("write the report to " + folder).c_str());
    return 1;
  }
  return 0;
}
