// Findings of invented checks: a good step, and its rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/text.h"
#include "known_layout.h"
#include "tools/check/check_table.h"

namespace bootstrap {

// Ranks of a good step: a GPU for each rank, PMIx, NCCL and a driver.
inline CheckFindings good_step(std::uint32_t nodes = 2, std::uint32_t tasks = 2) {
  CheckFindings findings;
  findings.id = {.job = 12, .step = 0, .restart = 0};
  findings.layout = block_layout(nodes, tasks);
  findings.waited_ms = 87;
  findings.has_exchanged = true;
  for (Rank rank = 0; rank < findings.layout.size(); ++rank) {
    const auto& place = findings.layout.place(rank);
    CheckReport report;
    report.rank = rank;
    report.host = findings.layout.host_of(rank);
    report.address = "node001";
    report.port = 20444;
    report.size = static_cast<std::uint32_t>(findings.layout.size());
    report.set_by = SetBy::kPlugin;
    report.target = "10.1.0.1";
    report.interface = "ib0";
    report.round_trip_us = 100 + rank;
    report.clock_skew_us = 40;
    report.clock_error_us = 60;
    report.has_exchanged = true;
    report.exchange_us = 11'000 + rank * 1000;
    report.has_pmix = true;
    report.pmix_client = "4.2.2";
    report.pmix_server = "4.2.2";
    report.nccl_version = "2.28.9";
    report.nccl_path = "/usr/lib/libnccl.so.2";
    report.cuda = "13.0 (driver 580.65.06)";
    report.has_gpus = report.is_nvidia = true;
    report.gpus_on_node = tasks;
    for (std::uint32_t gpu = 0; gpu < tasks; ++gpu) {
      report.gpu_list.push_back(cat({"/dev/nvidia", std::to_string(gpu)}));
    }
    report.open_gpus = report.gpu_list;
    report.own_gpu = report.gpu_list[place.local_rank];
    report.gpu_hint = "--gpu-bind=none";
    if (place.local_rank == 0) {
      report.library = report.plugin = "0.1.0";
      report.plugin_slurm = report.slurm = "23.11.4";
      report.python = "3.11.2 (/usr/bin/python3)";
      report.frameworks = "torch 2.6.0";
    }
    report.cpus = "0-3";
    report.cpu_count = 4;
    report.cpus_on_node = 4 * tasks;
    report.shm_free = std::uint64_t{12} << 30;
    report.locked_memory = UINT64_MAX;
    report.rdma_devices = 1;
    report.system = "Linux 6.1.0-18-amd64, glibc 2.36";
    findings.reports.emplace_back(std::move(report));
  }
  return findings;
}

inline CheckRow row_of(const CheckFindings& findings, std::string_view name) {
  const auto table = judge_step(findings);
  const auto row = std::find_if(table.rows.begin(), table.rows.end(), [&](auto& one) { return one.name == name; });
  EXPECT_NE(row, table.rows.end()) << name;
  return *row;
}

// Expects this result of the row, and no other row that is worse than in a good step.
inline CheckRow only_row(const CheckFindings& findings, std::string_view name, CheckResult result) {
  for (const auto& row : judge_step(findings).rows) {
    if (row.name != name) {
      EXPECT_LE(row.result, CheckResult::kAbsent) << row.name << ": " << row.text;
    }
  }
  auto row = row_of(findings, name);
  EXPECT_EQ(row.result, result) << row.text;
  return row;
}

}  // namespace bootstrap
