// Where the ranks meet: MASTER_ADDR and MASTER_PORT, which all nodes compute alike, and when the user's own stay.
// Further ports of a step, which ports slurmstepd or a preloaded process holds, and the messages if it cannot.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

class VariableList;
struct StepPlan;

// Two steps of a job get the same port only if their ids differ by a multiple of the range's size. Jobs with fewer than
// 37 steps share no port if their ids differ by less than (the range's size / 37). A requeued job gets another port
// than its previous run, whose processes may still run.
//
// With a salt, which srun takes from the kernel's random numbers, no other user can know the port before the step
// starts and take it first. Two steps that run at once on a node then get the same port with the probability 1 / (size
// of the range), and neighbours do not.
std::uint16_t computed_port(const StepId& id, const PortRange& range, std::uint64_t salt = 0);

// Makes a salt of `random` that gives 16 successive steps of a job 16 different ports, and likewise the first steps of
// 16 successive jobs, because such steps begin together. 0, no salt, stays 0.
std::uint64_t salt_of_step(const StepId& id, const PortRange& range, std::uint64_t random);

// The n-th further port of a step, n from 1: the n-th that Slurm reserved behind MASTER_PORT, if it reserved so many,
// else one computed from the ids, far from those of neighbouring steps.
std::uint16_t further_port(const StepFacts& facts, const PortRange& range, std::uint32_t n);

// A name or template of --bootstrap-addr with the host filled in, and the address by which Slurm reaches it.
std::string fill_address(std::string_view address, std::string_view host, std::string_view of_node);

bool needs_node_address(std::string_view address);  // whether it has %a

// The name of a node in the network where the ranks meet: `host`, or the site's template with `host` filled in. If
// names do not resolve, `meeting` has the address of the node of rank 0, which is used instead.
std::string fabric_name(const Settings& settings, const std::string& host, const MeetingAddresses& meeting);

struct MasterEndpoint {
  std::string address;
  std::string address_from;  // where it comes from, for people
  std::uint16_t port = 0;
  std::string port_from;
};

Result<MasterEndpoint> choose_master_endpoint(const StepFacts& facts, const Settings& settings);

// Adds MASTER_ADDR and MASTER_PORT. The user's values stay where they can be right, unless an option asks for others.
// In a step of several nodes an address that is loopback or no host name is replaced; in a step that asks also the name
// of another node of the job, and a name that srun cannot resolve. torchrun's address is replaced likewise.
void add_master(VariableList& variables, const StepFacts& facts, const MasterEndpoint& master,
                const Settings& settings);

// In an unasked step the user's address stays, since a server of the user's may be there. Returns a warning if the
// ranks may fail to meet there, else an empty string.
std::string warn_of_master(const StepPlan& plan, const StepFacts& facts);

// Plans to reserve the MASTER_PORT that the tasks will use, on the node of rank 0, unless the user's address may be
// elsewhere.
void plan_master_port(StepPlan& plan, const StepFacts& facts, const Settings& settings);

// The user's MASTER_ADDR if srun has to find out whether it resolves; empty: there is none, or it needs no look-up.
std::string_view master_to_look_up(const Environment& environment);

inline constexpr std::string_view kPortsVariable = "BOOTSTRAP_PORTS";

struct PortToReserve {
  std::uint16_t port = 0;
  std::string name;  // "MASTER_PORT 25000 on node001"
};

struct PortPlan {
  std::optional<PortToReserve> master;  // only on the node of rank 0
  bool is_users = false;                // MASTER_PORT was in the environment and is kept
  // Only tried: a reservation could keep the user's own program from the port, and the step did not ask for one.
  bool is_only_tried = false;
  std::vector<PortToReserve> workers;  // of this node's TensorFlow servers

  // BOOTSTRAP_PORTS: by local task the ports that it may have. It gets the first `count_of_task` that are free.
  std::vector<std::vector<std::uint16_t>> of_tasks;
  std::uint32_t count_of_task = 0;
  bool reserves_ports_of_tasks = true;
};

// The outcome of the reservation.
struct PortFacts {
  bool reserves_master = false;
  std::string refused_master;                // the port's name and the system's reason; empty: it was not refused
  std::vector<std::string> refused_workers;  // likewise
  std::vector<std::vector<std::uint16_t>> of_tasks;  // empty: too few ports are free for one of them
  std::optional<std::size_t> task_without_ports;     // that local task
};

struct RefusedPort {
  std::string sentence;   // the port, its host, the reason and a remedy
  bool is_users = false;  // the user set this MASTER_PORT: two steps of a job may share it, and one of them listens
};

std::vector<RefusedPort> describe_refused_ports(const PortPlan& plan, const PortFacts& found, const StepFacts& facts,
                                                const Settings& settings);

// Plans BOOTSTRAP_PORTS. The tasks' own servers listen there, such as those of inference engines.
Status plan_ports_of_tasks(PortPlan& plan, const StepFacts& facts, const Settings& settings);

// "MASTER_PORT 25000 on node001".
PortToReserve port_to_reserve(std::string_view what, std::uint16_t port, const std::string& host);

}  // namespace bootstrap
