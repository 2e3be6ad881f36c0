// What it costs to expand a host list, by its form.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "core/step/host_list.h"

namespace {

using bootstrap::HostList;

// One range, as slurmctld writes a full partition.
std::string one_range(std::int64_t hosts) { return "node[000001-" + std::to_string(hosts) + "]"; }

// Every second host: nothing can be compressed, so the text grows with the hosts.
std::string every_second(std::int64_t hosts) {
  std::string text = "node[1";
  for (std::int64_t i = 1; i < hosts; ++i) text += "," + std::to_string(2 * i + 1);
  return text + "]";
}

std::string racks(std::int64_t hosts) { return "rack[01-" + std::to_string(hosts / 50) + "]n[01-50]"; }

// Names of more than 15 characters, which std::string keeps on the heap.
std::string long_names(std::int64_t hosts) { return "gpu-node[000001-" + std::to_string(hosts) + "].example.org"; }

HostList parsed(const std::string& text) {
  auto list = HostList::parse(text);
  return list ? *list : HostList{};
}

using Form = std::string (*)(std::int64_t);

void expand(benchmark::State& state, Form form) {
  const auto list = parsed(form(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(list.expand());
  state.counters["per_host"] = benchmark::Counter(
      static_cast<double>(list.size()), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// The least that expansion can cost: the same std::strings, each a copy of one that is there.
void copy(benchmark::State& state, Form form) {
  const auto list = parsed(form(state.range(0)));
  const std::string name = list.at(list.size() - 1);
  for (auto _ : state) {
    std::vector<std::string> names;
    names.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) names.push_back(name);
    benchmark::DoNotOptimize(names);
  }
}

constexpr std::int64_t kHosts = 100000;
BENCHMARK_CAPTURE(expand, one_range, one_range)->Arg(kHosts);
BENCHMARK_CAPTURE(expand, every_second, every_second)->Arg(kHosts);
BENCHMARK_CAPTURE(expand, racks, racks)->Arg(kHosts);
BENCHMARK_CAPTURE(expand, long_names, long_names)->Arg(kHosts);
BENCHMARK_CAPTURE(copy, one_range, one_range)->Arg(kHosts);
BENCHMARK_CAPTURE(copy, every_second, every_second)->Arg(kHosts);
BENCHMARK_CAPTURE(copy, racks, racks)->Arg(kHosts);
BENCHMARK_CAPTURE(copy, long_names, long_names)->Arg(kHosts);

}  // namespace
