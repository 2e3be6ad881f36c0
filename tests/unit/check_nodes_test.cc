// What a check says about nodes: NCCL, CUDA, GPUs, CPUs and memory, each as it can be wrong.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check_step.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

TEST(CheckNccl, AnotherVersionSomewhereIsNamed) {
  auto findings = good_step();
  findings.reports[2]->nccl_version = findings.reports[3]->nccl_version = "2.27.3";
  const auto row = only_row(findings, "NCCL", CheckResult::kFailed);
  EXPECT_EQ(row.text,
            "2.27.3 on 2 ranks, 2.28.9 on the others; different versions of NCCL make no communicator, and some wait "
            "for each other for ever");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
}

TEST(CheckNccl, OneOfAnotherPlaceIsTheSame) {
  auto findings = good_step();
  findings.reports[2]->nccl_path = "/opt/nccl/lib/libnccl.so.2";
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kOk).text, "2.28.9 from 2 different places");
}

TEST(CheckNccl, MissingOnSomeRanksAndUnusable) {
  auto findings = good_step();
  findings.reports[1]->nccl_version.clear();
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kFailed).ranks, std::vector<Rank>{1});
  findings.reports[1]->nccl_trouble = "NCCL in /old is 2.11.4; set SLURM_BOOTSTRAP_NCCL";
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kFailed).text, findings.reports[1]->nccl_trouble);
}

TEST(CheckCuda, DriversThatDifferOrAreMissing) {
  auto findings = good_step();
  findings.reports[2]->cuda_module = findings.reports[3]->cuda_module = "575.57.08";
  EXPECT_EQ(only_row(findings, "CUDA", CheckResult::kWarning).text,
            "13.0 (driver 575.57.08) on 2 ranks, 13.0 (driver 580.65.06) on the others");
  findings = good_step();
  findings.reports[3]->cuda_version.clear();
  EXPECT_EQ(only_row(findings, "CUDA", CheckResult::kFailed).ranks, std::vector<Rank>{3});
}

TEST(CheckCuda, WhereNoGpuNeedsItADifferenceIsNoFailure) {
  auto findings = good_step();
  for (auto& report : findings.reports) report->has_gpus = false;
  findings.reports[3]->cuda_version.clear();
  const auto row = row_of(findings, "CUDA");
  EXPECT_EQ(row.result, CheckResult::kWarning);
  EXPECT_EQ(row.text, "13.0 (driver 580.65.06) on some ranks, missing on 1 rank");
  EXPECT_EQ(row.ranks, std::vector<Rank>{3});
}

TEST(CheckGpus, TwoRanksOnOneAreNamed) {
  auto findings = good_step();
  findings.reports[3]->own_gpu = findings.reports[2]->own_gpu;
  auto row = only_row(findings, "GPUs", CheckResult::kFailed);
  EXPECT_EQ(row.text, "2 ranks of node002 share /dev/nvidia0; NCCL needs a GPU for each rank");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
  for (auto& report : findings.reports) report->may_share_gpus = true;
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kWarning).ranks, (std::vector<Rank>{2, 3}));
}

TEST(CheckGpus, TheSameNumberOnTwoNodesIsNoClash) {
  auto findings = good_step(4, 1);
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kOk).text, "4 GPUs on 4 nodes; each rank can open its own");
  EXPECT_EQ(row_of(findings, "GPU peers").text, "one GPU on each node");
}

TEST(CheckGpus, OneThatItsRankCannotOpen) {
  auto findings = good_step();
  findings.reports[1]->open_gpus = {"/dev/nvidia0"};
  findings.reports[1]->closed_gpus = {"/dev/nvidia1"};
  const auto row = row_of(findings, "GPUs");
  EXPECT_EQ(row.result, CheckResult::kFailed);
  EXPECT_EQ(row.ranks, std::vector<Rank>{1});
  EXPECT_EQ(row.hint, "srun --gpu-bind=none");
}

TEST(CheckGpus, ListsThatNameNothingAndRanksWithoutOne) {
  auto findings = good_step();
  findings.reports[3]->gpu_list = {"/dev/nvidia0", "?"};
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kFailed).ranks, std::vector<Rank>{3});
  findings = good_step();
  findings.reports[3]->own_gpu.clear();
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kFailed).ranks, std::vector<Rank>{3});
  for (auto& report : findings.reports) report->leaves_gpus = true;
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kOk).text, "the program chooses them (--bootstrap-gpu=off)");
  findings = good_step();
  findings.reports[0]->has_gpus = false;
  EXPECT_EQ(only_row(findings, "GPUs", CheckResult::kFailed).ranks, std::vector<Rank>{0});
}

TEST(CheckPeers, HiddenOnesAreToldWithTheCure) {
  auto findings = good_step(2, 4);
  for (auto& report : findings.reports) {
    const auto own = report->own_gpu;
    report->gpu_list = report->open_gpus = {own};
    for (const auto* const other : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"}) {
      if (own != other) report->closed_gpus.emplace_back(other);
    }
  }
  const auto row = only_row(findings, "GPU peers", CheckResult::kWarning);
  EXPECT_EQ(row.text,
            "Slurm hides all but 1 of the 4 GPUs of a node from each task: no NVLink and no CUDA IPC between them");
  EXPECT_EQ(row.hint, "srun --gpu-bind=none");
  EXPECT_EQ(row.ranks.size(), 8U);
}

TEST(CheckPeers, GpusOfOthersOnTheNodeAreNone) {
  // Two of four GPUs are the step's, and a device cgroup keeps the others from all its tasks.
  auto findings = good_step();
  for (auto& report : findings.reports) report->closed_gpus = {"/dev/nvidia2", "/dev/nvidia3"};
  EXPECT_EQ(only_row(findings, "GPU peers", CheckResult::kOk).text,
            "every rank can open all GPUs of the step on its node");
}

TEST(CheckPeers, MigInstancesAreNone) {
  auto findings = good_step();
  for (auto& report : findings.reports) {
    report->own_gpu = report->rank % 2 == 0 ? "MIG-0" : "MIG-1";
    report->gpu_list = {report->own_gpu};
    report->gpus_on_node = 14;
  }
  EXPECT_EQ(only_row(findings, "GPU peers", CheckResult::kAbsent).text, "MIG instances have no peers");
}

TEST(CheckCpus, ATaskOnOneOfManyAndTooManyThreads) {
  auto findings = good_step();
  findings.reports[1]->cpu_count = 1;
  auto row = only_row(findings, "CPUs", CheckResult::kWarning);
  EXPECT_EQ(row.text, "bound to one CPU each; the step has 4 for each rank");
  EXPECT_EQ(row.ranks, std::vector<Rank>{1});
  // One CPU is right where there is no more.
  findings.reports[1]->cpus_on_node = 2;
  EXPECT_EQ(only_row(findings, "CPUs", CheckResult::kOk).text, "1 to 4 CPUs for a rank");
  findings.reports[2]->openmp_threads = "8";
  EXPECT_EQ(only_row(findings, "CPUs", CheckResult::kWarning).ranks, std::vector<Rank>{2});
}

TEST(CheckMemory, SharedMemoryIsCountedForEachRank) {
  auto findings = good_step();
  findings.reports[2]->shm_free = findings.reports[3]->shm_free = std::uint64_t{127} << 20;
  const auto row = only_row(findings, "/dev/shm", CheckResult::kWarning);
  EXPECT_EQ(row.text, "at least 127 MiB free; NCCL and data loaders need 64 MiB for each rank");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
  for (const Rank rank : {2U, 3U}) findings.reports[rank]->shm_free = std::uint64_t{128} << 20;
  EXPECT_EQ(only_row(findings, "/dev/shm", CheckResult::kOk).text, "at least 128 MiB free");
}

TEST(CheckMemory, ALimitMattersWhereThereIsRdma) {
  auto findings = good_step();
  findings.reports[1]->locked_memory = std::uint64_t{8} << 20;
  EXPECT_EQ(only_row(findings, "locked memory", CheckResult::kWarning).ranks, std::vector<Rank>{1});
  for (auto& report : findings.reports) report->rdma_devices = 0;
  EXPECT_EQ(only_row(findings, "locked memory", CheckResult::kOk).text, "limit 8 MiB; there is no RDMA device");
}

TEST(CheckSystem, NodesThatDifferAreNamed) {
  auto findings = good_step();
  findings.reports[2]->libc = findings.reports[3]->libc = "glibc 2.28";
  const auto row = only_row(findings, "system", CheckResult::kWarning);
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
}

}  // namespace
}  // namespace bootstrap
