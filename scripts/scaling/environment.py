"""The environment table: asks every node what it is, in a step, and puts nodes that are alike together."""

# SPDX-License-Identifier: Apache-2.0

import re
import subprocess

from scaling.output import Output
from scaling.place import PlaceError

LIMIT = 180  # seconds, from the start of the step


def gather(place, nodes):
    """Facts of each node, as {host: {name: value}}, in order."""
    gpus = 0 if place.options.device == "cpu" else min((node.gpus for node in place.nodes), default=0)
    process = place.start(place.step(nodes, 1, place.program("hostfacts.py"), gpus=gpus, world=False))
    try:
        said, _ = process.communicate(timeout=None if place.waits_in_queue else LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise PlaceError(f"asked {nodes} nodes what they have, and they did not answer within {LIMIT} s; see sinfo") from None
    except BaseException:
        process.terminate()
        process.wait(10)
        raise
    hosts = read(said)
    if process.returncode != 0 or len(hosts) != nodes:
        raise PlaceError(f"asked {nodes} nodes what they have with {place.python}, {len(hosts)} answered: "
                         f"{why(said) or 'nothing was said'}")
    return hosts


def why(said):
    """The last line that says something; and what to do where the nodes do not see the checkout."""
    output = Output()
    for line in said.splitlines():
        output.take(line)
    reason = output.reason()
    if "hostfacts.py" in reason and "No such file" in reason:
        reason += "; put the checkout into a folder that all nodes see"
    return reason


def read(said):
    """The lines of hostfacts.py, of all nodes."""
    ranks = {}
    for rank, name, value in re.findall(r"^\s*(\d+): ?@fact (\S+) ?(.*)", said, re.M):
        ranks.setdefault(int(rank), {})[name.replace("_", " ")] = value.strip()
    return {facts.pop("host"): facts for _, facts in sorted(ranks.items()) if "host" in facts}


def usable_gpus(hosts):
    """GPUs that PyTorch finds on every node."""
    return min((int(facts.get("GPUs for PyTorch", "0")) for facts in hosts.values()), default=0)


def machines(hosts):
    """How many machines the hosts are: those with one boot id are one."""
    return len({facts.get("machine") for facts in hosts.values()})


def table(hosts, place, command, when):
    """Rows (what, value) for the page. Where nodes differ, each value says which ones have it."""
    rows = [("made", when), ("command", command),
            ("cluster", f"{place.cluster}: {'started on one machine for this report' if place.one_machine else 'as it is'}"),
            ("Slurm", place.slurm),
            ("slurm-bootstrap", "plugin, --bootstrap=on" if place.has_plugin else "library, LD_PRELOAD"),
            ("hosts", f"{len(hosts)}: {', '.join(hosts)}")]
    count = machines(hosts)
    if count < len(hosts):
        rows.append(("machines", f"{count} (the hosts have {count} boot id{'' if count == 1 else 's'}: what goes between hosts "
                     "of one machine does not leave its memory)"))
    for name in dict.fromkeys(name for facts in hosts.values() for name in facts if name != "machine"):
        groups = {}
        for host, facts in hosts.items():
            groups.setdefault(facts.get(name, "unknown"), []).append(host)
        if len(groups) == 1:
            rows.append((name, next(iter(groups))))
        else:
            rows += [(f"{name} ({', '.join(members)})", value) for value, members in groups.items()]
    return rows
