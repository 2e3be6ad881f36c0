// What a node's topology costs at the start of a step: read from a file, and from /sys.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <string>

#include "core/hardware/topology.h"
#include "fake_machine.h"
#include "known_machine.h"
#include "probe/node_topology.h"

namespace bootstrap {
namespace {

void parse_text(benchmark::State& state, const char* name) {
  const auto text = text_of_known_machine(name);
  for (auto _ : state) {
    auto topology = parse_topology_text(text);
    benchmark::DoNotOptimize(topology);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK_CAPTURE(parse_text, dgx_h100, "dgx-h100")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(parse_text, dgx_a100, "dgx-a100")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(parse_text, gh200_quad, "gh200-quad")->Unit(benchmark::kMicrosecond);

void read_file(benchmark::State& state) {
  const FakeMachine folder;
  folder.write("/topology.txt", text_of_known_machine("dgx-h100"));
  for (auto _ : state) {
    auto topology = read_topology_file(folder.root() + "/topology.txt");
    benchmark::DoNotOptimize(topology);
  }
}
BENCHMARK(read_file)->Unit(benchmark::kMicrosecond);

// Of a file system on disk; the files of /sys take the kernel a little longer to make up.
void read_sysfs(benchmark::State& state, const char* name) {
  const FakeMachine machine(known_machine(name));
  for (auto _ : state) {
    auto topology = read_sysfs_topology(machine.root());
    benchmark::DoNotOptimize(topology);
  }
}
BENCHMARK_CAPTURE(read_sysfs, dgx_h100, "dgx-h100")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(read_sysfs, dgx_a100, "dgx-a100")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(read_sysfs, lumi_g, "eight-gpu-two-per-numa")->Unit(benchmark::kMicrosecond);

void read_this_machine(benchmark::State& state) {
  for (auto _ : state) {
    auto topology = read_sysfs_topology();
    benchmark::DoNotOptimize(topology);
  }
}
BENCHMARK(read_this_machine)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace bootstrap
