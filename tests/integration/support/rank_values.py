"""Finds wrong values in the tasks of a step, by comparison with the task's own facts and its neighbours."""

# SPDX-License-Identifier: Apache-2.0

# The line that a task prints; SHOW prints it with the cheapest program.
ECHO = "echo task $SLURM_PROCID $SLURMD_NODENAME $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT"
SHOW = ["/bin/sh", "-c", ECHO]


def wrong_values(text, size, per_node, address=""):
    """What is wrong with the lines of the tasks of a step with the same number on each node; '' if nothing is.

    `address` is the user's own, in place of the host of rank 0.
    """
    tasks = [line.split() for line in text.splitlines() if line.startswith("task ")]
    if sorted(task[1] for task in tasks) != sorted(map(str, range(size))):
        return "not every task ran"
    host_of_0 = next(task[2] for task in tasks if task[1] == "0")
    of_node = {}
    for task in sorted(tasks, key=lambda task: int(task[1])):
        of_node.setdefault(task[2], []).append(task[1])
    for task in tasks:
        if len(task) != 8:
            return f"values are missing: {task}"
        _, procid, node, rank, world_size, local_rank, told, port = task
        if (rank, world_size, local_rank) != (procid, str(size), str(of_node[node].index(procid))):
            return f"wrong ranks: {task}"
        if told != (address or host_of_0):
            return f"wrong address: {task}"
        if not port.isdigit() or not 1024 <= int(port) <= 65535:
            return f"wrong port: {task}"
    if len({task[-1] for task in tasks}) != 1:
        return "different ports"
    return "" if {len(ranks) for ranks in of_node.values()} == {per_node} else "tasks are not spread over the nodes"
