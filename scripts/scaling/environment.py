"""The environment table: asks every node what it is, in a step, and puts nodes that are alike together."""

# SPDX-License-Identifier: Apache-2.0

import subprocess

from scaling.output import LABEL, Output

LIMIT = 180  # seconds, from the start of the step


class NodesError(RuntimeError):
    """The nodes could not be asked; the text is one sentence."""


def gather(place, nodes):
    """Facts of each node, as {host: {name: value}}, in order."""
    gpus = min((node.gpus for node in place.nodes), default=0)
    if place.options.device == "cpu":
        gpus = 0
    command = place.step(nodes, 1, place.program("hostfacts.py"), gpus=gpus, world=False)
    process = place.start(command)
    try:
        stdout, stderr = process.communicate(timeout=None if place.waits_in_queue else LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise NodesError(f"asked {nodes} nodes what they have, and they did not answer within {LIMIT} s; see sinfo") from None
    except BaseException:
        process.terminate()
        process.wait(10)
        raise
    hosts = read(stdout)
    if process.returncode != 0 or len(hosts) != nodes:
        raise NodesError(f"asked {nodes} nodes what they have with {place.python}, {len(hosts)} answered: "
                                f"{why(stderr) or 'nothing was said'}")
    return hosts


def why(stderr):
    """The last line that says something; and what to do where the nodes do not see the checkout."""
    output = Output()
    output.errors = stderr.splitlines()
    reason = output.reason()
    if "hostfacts.py" in reason and "No such file" in reason:
        reason += "; put the checkout into a folder that all nodes see"
    return reason


def read(stdout):
    """The lines of hostfacts.py, of all nodes."""
    ranks = {}
    for line in stdout.splitlines():
        label = LABEL.match(line)
        text = LABEL.sub("", line, count=1)
        if label and text.startswith("@fact "):
            _, name, value = (text + " ").split(" ", 2)
            ranks.setdefault(int(label[1]), {})[name.replace("_", " ")] = value.strip()
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
    names = list(dict.fromkeys(name for facts in hosts.values() for name in facts))
    for name in names:
        if name == "machine":
            continue
        groups = {}
        for host, facts in hosts.items():
            groups.setdefault(facts.get(name, "unknown"), []).append(host)
        if len(groups) == 1:
            rows.append((name, next(iter(groups))))
        else:
            rows += [(f"{name} ({', '.join(members)})", value) for value, members in groups.items()]
    return rows
