// Runs a fuzz target without libFuzzer: on each seed of the given folders, and on each beginning of it.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& seed : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(seed.path(), std::ios::binary);
      const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
      for (std::size_t size = 0; size <= text.size(); ++size, ++inputs) {
        const std::vector<std::uint8_t> input(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
        (void)LLVMFuzzerTestOneInput(input.data(), input.size());
      }
    }
  }
  std::printf("%zu inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
