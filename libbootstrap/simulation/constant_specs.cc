// The table of constants: name, what it is measured in, and what it means.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "simulation/constants.h"

namespace bootstrap::simulation {
namespace {

using C = Constants;
constexpr auto kTime = Dimension::kTime;
constexpr auto kCount = Dimension::kCount;

constexpr std::array kSpecs{
    ConstantSpec{"step_create", Part::kLaunch, kTime, &C::step_create, "start of srun to its first launch message"},
    ConstantSpec{"tree_width", Part::kLaunch, kCount, &C::tree_width,
                 "children of a node in Slurm's trees (TreeWidth)"},
    ConstantSpec{"launch_child", Part::kLaunch, kTime, &C::launch_child,
                 "a sender's time for one more child of the launch tree"},
    ConstantSpec{"launch_hop", Part::kLaunch, kTime, &C::launch_hop, "a launch message from one host to the next"},
    ConstantSpec{"stepd_start", Part::kLaunch, kTime, &C::stepd_start,
                 "work of slurmd and slurmstepd before the first task"},
    ConstantSpec{"stepd_settle", Part::kLaunch, kTime, &C::stepd_settle,
                 "work of slurmstepd beside the starting tasks"},
    ConstantSpec{"user_init", Part::kLaunch, kTime, &C::user_init, "our plugin, once on each node"},
    ConstantSpec{"task_fork", Part::kLaunch, kTime, &C::task_fork,
                 "work of slurmstepd for each task, one after the other"},
    ConstantSpec{"task_init", Part::kLaunch, kTime, &C::task_init, "our plugin, in each task"},
    ConstantSpec{"task_exec", Part::kLaunch, kTime, &C::task_exec, "work of a task from its fork to main()"},
    ConstantSpec{"init_client", Part::kExchange, kTime, &C::init_client, "work of a rank in PMIx_Init"},
    ConstantSpec{"init_server", Part::kExchange, kTime, &C::init_server, "work of the node's server for it"},
    ConstantSpec{"init_wait", Part::kExchange, kTime, &C::init_wait, "what it waits there besides"},
    ConstantSpec{"local_message", Part::kExchange, kTime, &C::local_message,
                 "a message between a rank and the server of its node"},
    ConstantSpec{"called_ranks", Part::kExchange, kCount, &C::called_ranks,
                 "up to so many ranks each puts a value, above one a node"},
    ConstantSpec{"put_client", Part::kExchange, kTime, &C::put_client, "work of a rank for put, commit and fence"},
    ConstantSpec{"fence_server", Part::kExchange, kTime, &C::fence_server,
                 "work of the server for each rank of the node in a fence"},
    ConstantSpec{"fence_node", Part::kExchange, kTime, &C::fence_node, "work of the server for a fence itself"},
    ConstantSpec{"hop", Part::kExchange, kTime, &C::hop, "a small message between two nodes"},
    ConstantSpec{"hop_server", Part::kExchange, kTime, &C::hop_server,
                 "work of the server for a message of another node"},
    ConstantSpec{"first_hop", Part::kExchange, kTime, &C::first_hop, "more for the first message between two nodes"},
    ConstantSpec{"link", Part::kExchange, Dimension::kBandwidth, &C::link, "bandwidth of a node"},
    ConstantSpec{"value_bytes", Part::kExchange, Dimension::kBytes, &C::value_bytes, "a value of a rank on the wire"},
    ConstantSpec{"store_value", Part::kExchange, kTime, &C::store_value,
                 "work of each server to keep a value after a fence"},
    ConstantSpec{"get_client", Part::kExchange, kTime, &C::get_client,
                 "work of a rank to read a value from its node's memory"},
    ConstantSpec{"get_server", Part::kExchange, kTime, &C::get_server,
                 "work of the server for it; 0 where it is not asked"},
    ConstantSpec{"share_node", Part::kExchange, kTime, &C::share_node,
                 "work of a rank to take what another one of its node read"},
    ConstantSpec{"id_create", Part::kNccl, kTime, &C::id_create, "ncclGetUniqueId"},
    ConstantSpec{"id_bytes", Part::kNccl, Dimension::kBytes, &C::id_bytes, "a unique id"},
    ConstantSpec{"root_rank", Part::kNccl, kTime, &C::root_rank, "NCCL's root thread for one rank, both connections"},
    ConstantSpec{"root_connect", Part::kNccl, kTime, &C::root_connect, "work of a rank to check in with its root"},
    ConstantSpec{"root_backlog", Part::kNccl, kCount, &C::root_backlog, "connections that wait for a root at most"},
    ConstantSpec{"connect_retry", Part::kNccl, kTime, &C::connect_retry, "until a refused connection is tried again"},
    ConstantSpec{"stagger_threshold", Part::kNccl, kCount, &C::stagger_threshold,
                 "with more ranks of one root NCCL delays them"},
    ConstantSpec{"stagger_rate", Part::kNccl, Dimension::kRate, &C::stagger_rate, "so many of them come in a second"},
    ConstantSpec{"allgathers", Part::kNccl, kCount, &C::allgathers, "of NCCL around the ring of ranks"},
    ConstantSpec{"ring_step", Part::kNccl, kTime, &C::ring_step,
                 "one step of these; each takes half as many as there are ranks"},
    ConstantSpec{"store_listen", Part::kStore, kTime, &C::store_listen,
                 "process start to a listening TCPStore, without imports"},
    ConstantSpec{"store_rank", Part::kStore, kTime, &C::store_rank, "its server thread for a rank that connects"},
    ConstantSpec{"store_key", Part::kStore, kTime, &C::store_key, "its server thread for a key that a rank reads"},
    ConstantSpec{"store_backlog", Part::kStore, kCount, &C::store_backlog, "connections that wait for it at most"},
    ConstantSpec{"store_retry", Part::kStore, kTime, &C::store_retry, "until a client tries again that came too early"},
    ConstantSpec{"cores_per_node", Part::kMachine, Dimension::kNumber, &C::cores_per_node,
                 "0: enough for all that runs at once"},
    ConstantSpec{"machine_cores", Part::kMachine, Dimension::kNumber, &C::machine_cores,
                 "that all nodes share; 0: each has its own"},
    ConstantSpec{"jitter", Part::kMachine, Dimension::kNumber, &C::jitter,
                 "how much the length of work varies, with --seed"},
};

}  // namespace

std::span<const ConstantSpec> constant_specs() { return kSpecs; }

}  // namespace bootstrap::simulation
