// The rows about the nodes themselves: CPUs, memory, and what runs there.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap::check {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// NCCL's buffers between ranks of a node and PyTorch's data loaders live there. Docker gives a container 64 MiB in
// all, which is what NCCL's "failed to extend /dev/shm/nccl-..." comes from.
constexpr std::uint64_t kSharedMemoryForRank = 64 * kMiB;

// CPUs that Slurm gave to the step on this node for each of its ranks; 0: not told.
std::uint64_t share_of_cpus(const Survey& survey, const CheckReport& report) {
  return report.cpus_on_node / survey.layout().place(report.rank).local_size;
}

bool has_too_many_threads(const CheckReport& report) {
  const auto threads = parse_unsigned(report.openmp_threads, UINT32_MAX);
  return threads && report.cpu_count > 0 && *threads > report.cpu_count;
}

template <class Number>
Number least_of(const Survey& survey, Number CheckReport::*member) {
  auto least = survey.first().*member;
  for (const auto* const report : survey.reports()) least = std::min(least, report->*member);
  return least;
}

}  // namespace

CheckRow cpu_row(const Survey& survey) {
  auto lonely = survey.where(
      [&](const CheckReport& report) { return report.cpu_count == 1 && share_of_cpus(survey, report) > 1; });
  if (!lonely.empty()) {
    const auto share = share_of_cpus(survey, survey.report(lonely.front()));
    return warning(
        "CPUs", cat({"bound to one CPU each; the step has ", std::to_string(share), " for each rank"}),
        std::move(lonely),
        "use srun --cpus-per-task=N (since Slurm 22.05 srun does not take it from sbatch), or --cpu-bind=none");
  }
  const auto least = least_of(survey, &CheckReport::cpu_count);
  auto most = least;
  for (const auto* const report : survey.reports()) most = std::max(most, report->cpu_count);
  auto text = least == most ? cat({count_of(least, "CPU"), " for each rank"})
                            : cat({std::to_string(least), " to ", std::to_string(most), " CPUs for a rank"});
  auto crowded = survey.where(has_too_many_threads);
  if (crowded.empty()) return ok("CPUs", std::move(text));
  text += cat({", but OMP_NUM_THREADS is ", survey.report(crowded.front()).openmp_threads});
  return warning("CPUs", std::move(text), std::move(crowded), "set OMP_NUM_THREADS to at most the CPUs of a rank");
}

CheckRow shm_row(const Survey& survey) {
  const auto text = cat(
      {survey.layout().node_count() > 1 ? "at least " : "", amount(least_of(survey, &CheckReport::shm_free)), " free"});
  auto tight = survey.where([&](const CheckReport& report) {
    return report.shm_free < kSharedMemoryForRank * survey.layout().place(report.rank).local_size;
  });
  if (tight.empty()) return ok("/dev/shm", text);
  return warning("/dev/shm",
                 cat({text, "; NCCL and data loaders need ", amount(kSharedMemoryForRank), " for each rank"}),
                 std::move(tight), "remove old files from it; in a container use --shm-size=1g or --ipc=host");
}

CheckRow locked_memory_row(const Survey& survey) {
  const auto least = least_of(survey, &CheckReport::locked_memory);
  const auto text = least == UINT64_MAX ? std::string("no limit") : cat({"limit ", amount(least)});
  const auto with_rdma = survey.where([](const CheckReport& report) { return report.rdma_devices > 0; });
  if (with_rdma.empty()) return ok("locked memory", cat({text, "; there is no RDMA device"}));
  auto limited = survey.where(
      [](const CheckReport& report) { return report.rdma_devices > 0 && report.locked_memory != UINT64_MAX; });
  if (limited.empty()) return ok("locked memory", text);
  return warning("locked memory", cat({text, "; RDMA needs to lock more"}), std::move(limited),
                 "set LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf");
}

CheckRow system_row(const Survey& survey) {
  const auto systems = survey.variants([](const CheckReport& report) {
    return cat({report.kernel, ", ", report.libc});
  });
  if (systems.size() == 1) return ok("system", systems.front().value);
  return warning("system", describe_variants(systems), odd_ranks(systems),
                 "programs built on one node may not start on the other");
}

}  // namespace bootstrap::check
