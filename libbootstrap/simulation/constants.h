// What things cost, as the simulator takes it: measured, read in sources or assumed, and kept in a text file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/util/result.h"

namespace bootstrap::simulation {

inline constexpr std::size_t kMaxConstantsText = 64 * 1024;

// Seconds, bytes, bytes per second, per second, or plain numbers.
struct Constants {
  // The launch by Slurm.
  double step_create = 0;
  double tree_width = 0;
  double launch_child = 0;
  double launch_hop = 0;
  double stepd_start = 0;
  double stepd_settle = 0;
  double user_init = 0;
  double task_fork = 0;
  double task_init = 0;
  double task_exec = 0;
  // PMIx_Init.
  double init_client = 0;
  double init_server = 0;
  double init_wait = 0;
  double local_message = 0;
  // The exchange.
  double called_ranks = 0;
  double put_client = 0;
  double fence_server = 0;
  double fence_node = 0;
  double hop = 0;
  double hop_server = 0;
  double first_hop = 0;
  double link = 0;
  double value_bytes = 0;
  double store_value = 0;
  double get_client = 0;
  double get_server = 0;
  double share_node = 0;
  // NCCL.
  double id_create = 0;
  double id_bytes = 0;
  double root_rank = 0;
  double root_connect = 0;
  double root_backlog = 0;
  double connect_retry = 0;
  double stagger_threshold = 0;
  double stagger_rate = 0;
  double allgathers = 0;
  double ring_step = 0;
  // PyTorch's TCPStore.
  double store_listen = 0;
  double store_rank = 0;
  double store_key = 0;
  double store_backlog = 0;
  double store_retry = 0;
  // The machines.
  double cores_per_node = 0;
  double machine_cores = 0;
  double jitter = 0;
};

enum class Dimension { kTime, kRate, kBandwidth, kBytes, kCount, kNumber };

// Of a start, that a constant belongs to. Messages between nodes are of the exchange, and NCCL's roots use them, too.
enum class Part { kLaunch, kExchange, kNccl, kStore, kMachine };

struct ConstantSpec {
  std::string_view name;
  Part part;
  Dimension dimension;
  double Constants::*member;
  std::string_view meaning;
};

// All of them, in the order of the file.
std::span<const ConstantSpec> constant_specs();

struct ConstantsFile {
  Constants values;
  std::map<std::string, std::string, std::less<>> origins;  // by name: how it was found
  std::string date;
  std::string machine;
  std::size_t taken = 0;  // how many constants the last text held
};

// Lines of "name = value unit  # how it was found", of "date = ..." and "machine = ...", empty ones, and comments.
// What is not in `text` is as in `base`.
Result<ConstantsFile> parse_constants(std::string_view text, const ConstantsFile& base);

// Those that were measured where this was developed: simulation/constants.txt, which parses.
std::string_view built_in_constants_text();
Result<ConstantsFile> built_in_constants();

// As a file of constants, with all of them.
std::string constants_text(const ConstantsFile& file);

// "90 us", "10 Gb/s": as short as it can be read.
std::string constant_text(const ConstantSpec& spec, double value);

}  // namespace bootstrap::simulation
