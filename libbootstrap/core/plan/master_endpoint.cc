// Where the ranks meet, when the user's own MASTER_ADDR and MASTER_PORT stay, and the further ports of a step.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/master_endpoint.h"

#include <algorithm>

#include "core/hardware/network.h"
#include "core/plan/plan.h"
#include "core/step/host_list.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// splitmix64's finalizer: values that are close together give results that are far apart.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t size_of(const PortRange& range) { return std::uint64_t{range.high} - range.low + 1; }

std::uint64_t number_of(const StepId& id) {
  constexpr std::uint64_t kPerJob = 37;
  constexpr std::uint64_t kPerRestart = 5003;  // prime, far from a multiple of kPerJob
  return id.job * kPerJob + id.step + id.restart * kPerRestart;
}

// Why the user's MASTER_ADDR cannot be right for a step of several nodes; empty: it can.
std::string unsuitable_master(const StepFacts& facts, std::string_view address) {
  if (facts.layout.node_count() < 2 || address.empty()) return {};
  if (!is_host_name(address)) return "it is not a host name";
  if (is_loopback_name(address)) return "it is a loopback address";
  return {};
}

// Why the ranks may fail to meet at the user's MASTER_ADDR; empty: no reason is known. A name that is not one of the
// step's nodes may be a name of rank 0's host in another network.
std::string doubtful_master(const StepFacts& facts, std::string_view address) {
  const auto& layout = facts.layout;
  if (address.empty() || !facts.knows_hosts) return {};
  if (address == facts.decision.unusable_master)
    return "it does not resolve where srun runs, or only to a loopback address";
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const auto& first = layout.host_of(0);
  if (address == first || short_name(address) == short_name(first) || parse_ip_address(address)) return {};
  const auto is_named = [&](const std::string& host) {
    return address == host || (address.find('.') != std::string_view::npos && short_name(address) == host);
  };
  const auto& hosts = layout.hosts();
  if (std::any_of(hosts.begin(), hosts.end(), is_named)) return cat({"rank 0 is on ", first});
  // The user can set this variable, and 65,536 names take 46 million instructions. A larger job skips this test.
  constexpr std::size_t kMostNodes = 2048;
  const auto of_job = parse_host_list(facts.environment.get("SLURM_JOB_NODELIST").value_or(""), kMostNodes);
  if (!of_job || std::none_of(of_job->begin(), of_job->end(), is_named)) return {};
  return cat({"this step has no task on that node, and rank 0 is on ", first});
}

std::string describe_refused_master(const PortPlan& plan, const std::string& reason, const Settings& settings) {
  if (plan.is_users) return cat({reason, "; you set this port: if rank 0 listens on it, set another one"});
  const auto& port = settings.port;
  if (port.value != 0) {
    return cat({reason, "; set another port in ", setting_name(settings, "port"),
                ", or let the plugin choose one (--bootstrap-port=auto)"});
  }
  constexpr std::string_view kOtherPorts =
      "; start the step again, or set other ports with --bootstrap-port or --bootstrap-port-range; if this happens "
      "often, let Slurm reserve the ports (MpiParams=ports= in slurm.conf), or use --bootstrap-claim=off to start "
      "without a reserved port";
  return cat({reason, kOtherPorts});
}

// The i-th port, from 0, that a rank may have in BOOTSTRAP_PORTS: each differs from all other ports of the step on the
// node. 0: the range has no more.
std::uint16_t task_port(const StepFacts& facts, const Settings& settings, Rank rank, std::uint32_t i) {
  const auto& range = settings.port_range.value;
  const auto most = facts.layout.most_on_a_node();
  const auto n = most + 2 + facts.layout.place(rank).local_rank + i * most;  // behind TensorFlow's and JAX's
  return n + range.low <= range.high ? further_port(facts, range, n) : std::uint16_t{0};
}

}  // namespace

std::uint16_t computed_port(const StepId& id, const PortRange& range, std::uint64_t salt) {
  const auto place = salt == 0 ? number_of(id) : mix(salt);
  return static_cast<std::uint16_t>(range.low + place % size_of(range));
}

std::uint64_t salt_of_step(const StepId& id, const PortRange& range, std::uint64_t random) {
  constexpr std::uint64_t kNeighbours = 16;
  if (random == 0 || size_of(range) < kNeighbours) return random;
  const auto is_apart = [&](std::uint64_t salt) {
    return salt != 0 && (computed_port(id, range, salt) - range.low) % kNeighbours == number_of(id) % kNeighbours;
  };
  while (!is_apart(random)) ++random;
  return random;
}

std::uint16_t further_port(const StepFacts& facts, const PortRange& range, std::uint32_t n) {
  if (facts.reserved_ports && n < facts.reserved_ports->size()) return (*facts.reserved_ports)[n];
  const auto salt = facts.decision.salt;
  const auto size = size_of(range);
  const auto master = std::uint64_t{computed_port(facts.id, range, salt)} - range.low;
  const auto& id = facts.id;
  const auto ids = (std::uint64_t{id.job} << 32) ^ (std::uint64_t{id.restart} << 24) ^ id.step;
  const auto first = mix(ids ^ salt) % size;
  // Counts upwards from the first one, wraps at the end of the range, and skips the step's own MASTER_PORT.
  const bool passes_master = (master + size - first) % size < n;
  const auto offset = (first + n - (passes_master ? 0 : 1)) % size;
  return static_cast<std::uint16_t>(range.low + offset);
}

std::string fill_address(std::string_view address, std::string_view host, std::string_view of_node) {
  return replaced(replaced(address, "%h", host), "%a", of_node);
}

bool needs_node_address(std::string_view address) { return address.find("%a") != std::string_view::npos; }

std::string fabric_name(const Settings& settings, const std::string& host, const MeetingAddresses& meeting) {
  const auto& address = settings.address.value;
  if (!meeting.of_node.empty() && settings.address.source == Source::kDefault) return meeting.of_node;
  return address.find('%') == std::string::npos ? host : fill_address(address, host, meeting.of_node);
}

Result<MasterEndpoint> choose_master_endpoint(const StepFacts& facts, const Settings& settings) {
  MasterEndpoint master;
  const auto& address = settings.address.value;
  const auto& of_node = facts.meeting.of_node;
  const auto& host = facts.layout.host_of(0);
  const bool is_known = (facts.knows_hosts || address.find("%h") == std::string::npos) &&
                        (!needs_node_address(address) || !of_node.empty());
  if (settings.address.source != Source::kDefault) {
    if (is_known) master.address = fill_address(address, host, of_node);
    master.address_from = setting_name(settings, "master_addr");
  } else if (!of_node.empty()) {
    master.address = of_node;
    master.address_from = cat({"NodeAddr of ", host, ", a name that does not resolve"});
  } else {
    if (is_known) master.address = host;
    master.address_from = facts.layout_source == LayoutSource::kStepLayout ? "host of rank 0, from srun"
                          : facts.layout_source == LayoutSource::kMpirun   ? "this host, where all ranks are"
                                                                           : "first host of SLURM_STEP_NODELIST";
  }

  if (settings.port.value != 0) {
    master.port = settings.port.value;
    master.port_from = setting_name(settings, "port");
    return master;
  }
  if (facts.reserved_ports) {
    if (facts.reserved_ports->empty()) {
      const auto text = facts.environment.get("SLURM_STEP_RESV_PORTS").value_or("");
      return fail(
          ErrorCode::kInvalid,
          cat({"SLURM_STEP_RESV_PORTS=", quote(text), " does not start with a port from 1024 to 65535; ask for ",
               "one with --bootstrap-port, or ask your administrator to check MpiParams=ports= in slurm.conf"}));
    }
    master.port = facts.reserved_ports->front();
    master.port_from = "SLURM_STEP_RESV_PORTS";
    return master;
  }
  const auto& range = settings.port_range.value;
  const bool is_salted = facts.decision.salt != 0;
  master.port = computed_port(facts.id, range, facts.decision.salt);
  master.port_from = cat({is_salted ? std::string("chosen by srun") : cat({"step ", to_string(facts.id)}), " in ",
                          std::to_string(range.low), "-", std::to_string(range.high)});
  return master;
}

void add_master(VariableList& variables, const StepFacts& facts, const MasterEndpoint& master,
                const Settings& settings) {
  const bool port_is_asked = settings.port.source >= Source::kEnvironment && settings.port.value != 0;
  const bool address_is_asked = settings.address.source >= Source::kEnvironment;
  const auto users = facts.environment.get("MASTER_ADDR").value_or("");
  auto why = unsuitable_master(facts, users);
  // Under mpirun on several nodes only the user knows the host of rank 0.
  if (master.address.empty() && (!variables.set_by_user("MASTER_ADDR") || !why.empty())) return;
  variables.common("MASTER_ADDR", master.address, master.address_from, address_is_asked);
  const bool is_torchruns = facts.decision.set_up == SetUp::kTorchrun;  // torchrun does not read MASTER_ADDR
  if (why.empty() && (facts.decision.asked != Asked::kUnasked || is_torchruns)) why = doubtful_master(facts, users);
  if (!why.empty()) variables.replace_users(std::move(why));
  variables.common("MASTER_PORT", std::to_string(master.port), master.port_from, port_is_asked);
  if (parse_unsigned(facts.environment.get("MASTER_PORT").value_or(""), kMaxPort).value_or(0) == 0) {
    variables.replace_users("it is no port");
  }
}

std::string warn_of_master(const StepPlan& plan, const StepFacts& facts) {
  if (!is_kept(plan.variables, "MASTER_ADDR")) return {};
  const auto users = facts.environment.get("MASTER_ADDR").value_or("");
  const auto& first = facts.layout.host_of(0);
  auto why = facts.decision.asked == Asked::kUnasked ? doubtful_master(facts, users) : std::string();
  std::string_view cure = "unset it before srun, or use --bootstrap=on";
  if (why.empty() && facts.is_users_master_elsewhere) {
    why = cat({"it is no address of ", first, ", where rank 0 is"});
    cure = "unset it before srun";
  }
  if (why.empty()) return {};
  return cat({"MASTER_ADDR=", quote(users, 40), " stays as you set it, but ", why, "; if the ranks are to meet on ",
              first, ", ", cure});
}

void plan_master_port(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  const auto* const variable = find_variable(plan.variables, "MASTER_PORT");
  if (variable == nullptr) return;
  const auto port = parse_unsigned<std::uint16_t>(variable->effective()).value_or(0);
  plan.ports.is_users = variable->action == Action::kKept;
  plan.ports.is_only_tried = plan.ports.is_users && facts.decision.asked == Asked::kUnasked;
  const auto& ranks = facts.ranks_here;
  if (port == 0 || !settings.claim.value || std::find(ranks.begin(), ranks.end(), Rank{0}) == ranks.end()) return;
  const auto* const address = find_variable(plan.variables, "MASTER_ADDR");
  const bool is_here = !facts.meeting.users.empty() && !facts.is_users_master_elsewhere;
  const bool is_elsewhere =
      address != nullptr && address->action == Action::kKept && address->previous != address->value && !is_here;
  if (is_elsewhere) return;  // a server of the user's may listen there
  plan.ports.master = port_to_reserve("MASTER_PORT", port, facts.layout.host_of(0));
}

std::string_view master_to_look_up(const Environment& environment) {
  const auto users = environment.get("MASTER_ADDR").value_or("");
  const bool is_ours = ExportRecord(environment).is_ours("MASTER_ADDR", users);
  return is_ours || !is_host_name(users) || is_loopback_name(users) ? std::string_view() : users;
}

PortToReserve port_to_reserve(std::string_view what, std::uint16_t port, const std::string& host) {
  return {port, cat({what, " ", std::to_string(port), " on ", host})};
}

std::vector<RefusedPort> describe_refused_ports(const PortPlan& plan, const PortFacts& found, const StepFacts& facts,
                                                const Settings& settings) {
  std::vector<RefusedPort> refused;
  // A single task meets no other, and a server would report the error itself.
  if (!found.refused_master.empty() && facts.layout.size() > 1) {
    refused.push_back({describe_refused_master(plan, found.refused_master, settings), plan.is_users});
  }
  for (const auto& reason : found.refused_workers) {
    constexpr std::string_view kHint =
        "; start the step again, or set other ports with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE";
    refused.push_back({cat({reason, kHint})});
  }
  if (!found.task_without_ports) return refused;
  const auto rank = facts.ranks_here[*found.task_without_ports];
  refused.push_back(
      {cat({setting_text(settings, "ports"), ": too few ports are free for rank ", std::to_string(rank), " on ",
            facts.layout.host_of(rank), "; set others with --bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE"})});
  return refused;
}

Status plan_ports_of_tasks(PortPlan& plan, const StepFacts& facts, const Settings& settings) {
  constexpr std::uint32_t kMostOnNode = 256;  // descriptors of slurmstepd, which needs others for the tasks
  constexpr std::uint32_t kMostInUse = 16;    // ports of a task that are skipped because others use them
  const auto count = settings.ports.value;
  if (count == 0 || facts.decision.set_up == SetUp::kTorchrun) return {};
  const auto most = facts.layout.most_on_a_node();
  const auto& range = settings.port_range.value;
  const auto others = most + 2;  // MASTER_PORT, JAX's and TensorFlow's
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const auto room = std::min(kMostOnNode, size - std::min(size, others));
  if (most * count > room) {
    return fail(ErrorCode::kLimit,
                cat({setting_text(settings, "ports"), ": ", counted(most, "task"), " on a node need ",
                     std::to_string(most * count), " ports, and there are ", std::to_string(room),
                     "; use a lower number, or a larger --bootstrap-port-range"}));
  }
  plan.count_of_task = count;
  plan.reserves_ports_of_tasks = settings.claim.value;
  for (const auto rank : facts.ranks_here) {
    auto& ports = plan.of_tasks.emplace_back();
    for (std::uint32_t i = 0; i < count + kMostInUse; ++i) {
      const auto port = task_port(facts, settings, rank, i);
      if (port == 0) break;
      ports.push_back(port);
    }
  }
  return {};
}

}  // namespace bootstrap
