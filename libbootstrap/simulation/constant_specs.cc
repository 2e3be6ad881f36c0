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
    ConstantSpec{"step_create", kTime, &C::step_create, "start of srun to its first launch message"},
    ConstantSpec{"tree_width", kCount, &C::tree_width, "children of a node in Slurm's trees (TreeWidth)"},
    ConstantSpec{"launch_child", kTime, &C::launch_child, "a sender's time for one more child of the launch tree"},
    ConstantSpec{"launch_hop", kTime, &C::launch_hop, "a launch message from one host to the next"},
    ConstantSpec{"stepd_start", kTime, &C::stepd_start, "work of slurmd and slurmstepd before the first task"},
    ConstantSpec{"stepd_settle", kTime, &C::stepd_settle, "work of slurmstepd beside the starting tasks"},
    ConstantSpec{"user_init", kTime, &C::user_init, "our plugin, once on each node"},
    ConstantSpec{"task_fork", kTime, &C::task_fork, "work of slurmstepd for each task, one after the other"},
    ConstantSpec{"task_init", kTime, &C::task_init, "our plugin, in each task"},
    ConstantSpec{"task_exec", kTime, &C::task_exec, "work of a task from its fork to main()"},
    ConstantSpec{"init_client", kTime, &C::init_client, "work of a rank in PMIx_Init"},
    ConstantSpec{"init_server", kTime, &C::init_server, "work of the node's server for it"},
    ConstantSpec{"init_wait", kTime, &C::init_wait, "what it waits there besides"},
    ConstantSpec{"local_message", kTime, &C::local_message, "a message between a rank and the server of its node"},
    ConstantSpec{"called_ranks", kCount, &C::called_ranks, "up to so many ranks each puts a value, above one a node"},
    ConstantSpec{"put_client", kTime, &C::put_client, "work of a rank for put, commit and fence"},
    ConstantSpec{"fence_server", kTime, &C::fence_server, "work of the server for each rank of the node in a fence"},
    ConstantSpec{"fence_node", kTime, &C::fence_node, "work of the server for a fence itself"},
    ConstantSpec{"hop", kTime, &C::hop, "a small message between two nodes"},
    ConstantSpec{"hop_server", kTime, &C::hop_server, "work of the server for a message of another node"},
    ConstantSpec{"first_hop", kTime, &C::first_hop, "more for the first message between two nodes"},
    ConstantSpec{"link", Dimension::kBandwidth, &C::link, "bandwidth of a node"},
    ConstantSpec{"value_bytes", Dimension::kBytes, &C::value_bytes, "a value of a rank on the wire"},
    ConstantSpec{"store_value", kTime, &C::store_value, "work of each server to keep a value after a fence"},
    ConstantSpec{"get_client", kTime, &C::get_client, "work of a rank to read a value from its node's memory"},
    ConstantSpec{"get_server", kTime, &C::get_server, "work of the server for it; 0 where it is not asked"},
    ConstantSpec{"share_node", kTime, &C::share_node, "work of a rank to take what another one of its node read"},
    ConstantSpec{"id_create", kTime, &C::id_create, "ncclGetUniqueId"},
    ConstantSpec{"id_bytes", Dimension::kBytes, &C::id_bytes, "a unique id"},
    ConstantSpec{"root_rank", kTime, &C::root_rank, "NCCL's root thread for one rank, both connections"},
    ConstantSpec{"root_connect", kTime, &C::root_connect, "work of a rank to check in with its root"},
    ConstantSpec{"root_backlog", kCount, &C::root_backlog, "connections that wait for a root at most"},
    ConstantSpec{"connect_retry", kTime, &C::connect_retry, "until a refused connection is tried again"},
    ConstantSpec{"stagger_threshold", kCount, &C::stagger_threshold, "with more ranks of one root NCCL delays them"},
    ConstantSpec{"stagger_rate", Dimension::kRate, &C::stagger_rate, "so many of them come in a second"},
    ConstantSpec{"allgathers", kCount, &C::allgathers, "of NCCL around the ring of ranks"},
    ConstantSpec{"ring_step", kTime, &C::ring_step, "one step of these; each takes half as many as there are ranks"},
    ConstantSpec{"store_listen", kTime, &C::store_listen, "process start to a listening TCPStore, without imports"},
    ConstantSpec{"store_rank", kTime, &C::store_rank, "its server thread for a rank that connects"},
    ConstantSpec{"store_key", kTime, &C::store_key, "its server thread for a key that a rank reads"},
    ConstantSpec{"store_backlog", kCount, &C::store_backlog, "connections that wait for it at most"},
    ConstantSpec{"store_retry", kTime, &C::store_retry, "until a client tries again that came too early"},
    ConstantSpec{"cores_per_node", Dimension::kNumber, &C::cores_per_node, "0: enough for all that runs at once"},
    ConstantSpec{"machine_cores", Dimension::kNumber, &C::machine_cores, "that all nodes share; 0: each has its own"},
    ConstantSpec{"jitter", Dimension::kNumber, &C::jitter, "how much the length of work varies, with --seed"},
};

}  // namespace

std::span<const ConstantSpec> constant_specs() { return kSpecs; }

}  // namespace bootstrap::simulation
