#!/usr/bin/env python3
"""Writes the topologies beside it: known machines as lstopo's XML (hwloc 2), and as the text of `slurm-bootstrap topology`.

The XML has no device nodes of NVIDIA's GPUs, as lstopo's has none. The differential test compares the two forms.

The comment above each machine cites the source of its facts. UUIDs are made up, and PCI addresses where marked so.
Run it after a change; the files are kept, so that the tests need no Python. virtual-machine.xml is not written here: it
is what hwloc 2.9 found on one, without names and addresses; its text is what `slurm-bootstrap topology --from` makes of it.
"""

import pathlib
import uuid
from xml.sax.saxutils import quoteattr

HERE = pathlib.Path(__file__).resolve().parent

# PCI class, vendor, device, vendor and device of the board; model as the driver names it.
# Numbers: https://pci-ids.ucw.cz, and the sources of the machines.
V100 = ("0302 [10de:1db5] [10de:1249] a1", "Tesla V100-SXM2-32GB")
A100 = ("0302 [10de:20b0] [10de:134f] a1", "NVIDIA A100-SXM4-40GB")
H100 = ("0302 [10de:2330] [10de:16c1] a1", "NVIDIA H100 80GB HBM3")
GH200 = ("0302 [10de:2342] [10de:16eb] a1", "NVIDIA GH200 120GB")
MI250X = ("0380 [1002:7408] [1002:0b0a] 00", None)

# What is no GPU for computing, though it looks like one or has the same vendor.
CONSOLE = "0300 [1a03:2000] [1a03:2000] 41"  # ASPEED, in the management controller of most servers
NVSWITCH = "0680 [10de:1af1] [10de:0000] a1"


def mask(cpus):
    """As hwloc writes it: groups of 32 bits, nothing for an empty one that is neither first nor last."""
    if not cpus:
        return "0x0"
    groups = [0] * (max(cpus) // 32 + 1)
    for cpu in cpus:
        groups[cpu // 32] |= 1 << cpu % 32
    texts = [f"0x{group:08x}" if group else "" for group in reversed(groups)]
    return ",".join(texts[:-1] + [texts[-1] or "0x0"])


def numbers(text):
    """The CPUs of "0-19,40-59"."""
    cpus = []
    for item in text.split(","):
        first, _, last = item.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


class Numa:
    """A NUMA node with its devices. `cpus` is text; each core has `smt` hyperthreads, in equal parts of the list."""

    def __init__(self, number, cpus, smt=1, gpus=(), other=(), memory_only=()):
        self.number, self.cpus = number, numbers(cpus)
        cores = len(self.cpus) // smt
        self.cores = [self.cpus[i::cores] for i in range(cores)]
        self.gpus, self.other, self.memory_only = gpus, other, memory_only

    def nodes(self):
        return [self.number, *self.memory_only]


class Machine:
    """Packages with NUMA nodes, and the GPUs by PCI address."""

    def __init__(self, name, packages, gpu, minors=None, allowed=None, other=()):
        self.name, self.packages, self.gpu, self.other = name, packages, gpu, other
        self.allowed = None if allowed is None else set(numbers(allowed))
        addresses = sorted(address for package in packages for numa in package for address in numa.gpus)
        self.minor = dict(zip(addresses, minors or range(len(addresses))))
        self.lines, self.count = [], 0

    def open(self, level, object_type, numa_nodes, cpus, ending=">", **attributes):
        kept = [cpu for cpu in cpus if self.allowed is None or cpu in self.allowed]
        sets = {"cpuset": mask(kept), "complete_cpuset": mask(cpus), "nodeset": mask(numa_nodes),
                "complete_nodeset": mask(numa_nodes)}
        if object_type == "Machine":
            sets |= {"allowed_cpuset": mask(kept), "allowed_nodeset": mask(numa_nodes)}
        self.object(level, object_type, ending, **attributes, **sets)

    def object(self, level, object_type, ending=">", **attributes):
        self.count += 1
        pairs = {"type": object_type, **attributes, "gp_index": self.count}
        self.lines.append(" " * level + "<object " + " ".join(f'{k}="{v}"' for k, v in pairs.items()) + ending)

    def info(self, depth, name, value):
        self.lines.append(" " * depth + f"<info name={quoteattr(name)} value={quoteattr(value)}/>")

    def close(self, depth):
        self.lines.append(" " * depth + "</object>")

    def device(self, depth, address, pci_type):
        """A device behind a switch behind a host bridge of its own."""
        domain, bus = address.split(":")[:2]
        behind, number = f"{domain}:[{bus}-{bus}]", int(bus, 16)
        self.object(depth, "Bridge", bridge_type="0-1", depth="0", bridge_pci=f"{domain}:[{number - 1:02x}-{bus}]")
        self.object(depth + 1, "Bridge", bridge_type="1-1", depth="1", bridge_pci=behind,
                    pci_busid=f"{domain}:{number - 1:02x}:00.0", pci_type="0604 [1000:c010] [1000:a096] b0")
        self.object(depth + 2, "PCIDev", pci_busid=address, pci_type=pci_type)
        if address in self.minor:
            self.gpu_infos(depth + 3, address)
        for level in (2, 1, 0):
            self.close(depth + level)

    def uuid(self, address):
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.name} {address}')}"

    def gpu_infos(self, depth, address):
        """What hwloc has from NVML; of AMD's GPUs the render nodes, which are counted from 128."""
        model, minor = self.gpu[1], self.minor[address]
        if model is None:
            self.object(depth, "OSDev", "/>", name=f"renderD{128 + minor}", osdev_type=1)
            return
        number = sorted(self.minor).index(address)
        self.object(depth, "OSDev", name=f"nvml{number}", subtype="NVML", osdev_type=1)
        self.info(depth + 1, "GPUModel", model)
        self.info(depth + 1, "NVIDIAUUID", self.uuid(address))
        self.close(depth)

    def gpu_line(self, address, numa):
        model, minor = self.gpu[1], self.minor[address]
        vendor, device, rest = ("amd", f"dri/renderD{128 + minor}", "-") if model is None else (
            "nvidia", f"nvidia{minor}", f"{self.uuid(address)} {model}")
        return f"gpu {address} {vendor} {self.ranges(numa.cpus)} /dev/{device} {rest}"

    def ranges(self, cpus):
        """The CPUs that are allowed as "0-3,8"."""
        kept = [cpu for cpu in sorted(cpus) if self.allowed is None or cpu in self.allowed]
        starts = [cpu for cpu in kept if cpu - 1 not in kept]
        ends = [cpu for cpu in kept if cpu + 1 not in kept]
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends))

    def text(self):
        numas = [numa for package in self.packages for numa in package]
        lines = ["slurm-bootstrap-topology 1", f"cpus {self.ranges([cpu for numa in numas for cpu in numa.cpus])}"]
        for number, package in enumerate(self.packages):
            lines.append(f"package {number} {self.ranges([cpu for numa in package for cpu in numa.cpus])}")
        lines += [f"numa {numa.number} {self.ranges(numa.cpus)}" for numa in numas]
        lines += [line for _, line in sorted((a, self.gpu_line(a, numa)) for numa in numas for a in numa.gpus)]
        return "\n".join([*lines, "end", ""])

    def inside(self, depth, numa):
        """What an object holds whose CPUs are those of one NUMA node: memory, cores, devices."""
        for node in numa.nodes():
            self.open(depth, "NUMANode", [node], numa.cpus, "/>", os_index=node, local_memory=128 << 30)
        for core in numa.cores:
            kept = [cpu for cpu in core if self.allowed is None or cpu in self.allowed]
            if not kept:
                continue
            self.open(depth, "Core", numa.nodes(), core, os_index=core[0])
            for cpu in kept:
                self.open(depth + 1, "PU", numa.nodes(), [cpu], "/>", os_index=cpu)
            self.close(depth)
        for address in numa.gpus:
            self.device(depth, address, self.gpu[0])
        for address, pci_type in numa.other:
            self.device(depth, address, pci_type)

    def package(self, depth, number, numas):
        nodes = [node for numa in numas for node in numa.nodes()]
        self.open(depth, "Package", nodes, [cpu for numa in numas for cpu in numa.cpus], os_index=number)
        for numa in numas:
            if len(numas) == 1:
                self.inside(depth + 1, numa)
                continue
            self.open(depth + 1, "Group", numa.nodes(), numa.cpus, kind="1001", subkind="0")
            self.inside(depth + 2, numa)
            self.close(depth + 1)
        self.close(depth)

    def write(self):
        numas = [numa for package in self.packages for numa in package]
        self.lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
                      '<topology version="2.0">']
        self.open(1, "Machine", [node for numa in numas for node in numa.nodes()],
                  [cpu for numa in numas for cpu in numa.cpus], os_index=0)
        self.info(2, "Backend", "Linux")
        for number, package in enumerate(self.packages):
            self.package(2, number, package)
        for address, pci_type in self.other:
            self.device(2, address, pci_type)
        self.close(1)
        (HERE / f"{self.name}.xml").write_text("\n".join([*self.lines, "</topology>", ""]), encoding="utf-8")
        (HERE / f"{self.name}.txt").write_text(self.text(), encoding="utf-8")


def addresses(text, domain="0000"):
    return [f"{domain}:{bus}:00.0" for bus in text.split()]


# CPUs and PCI addresses: an NCCL topology file in https://github.com/NVIDIA/nccl/issues/671. The order of the minor
# numbers is made up: NVIDIA's driver counts them as it finds the devices, not by address.
DGX_1 = [[Numa(0, "0-19,40-59", 2, addresses("06 07 0a 0b"))],
         [Numa(1, "20-39,60-79", 2, addresses("85 86 89 8a"), other=[("0000:91:00.0", CONSOLE)])]]

# CPUs, NUMA nodes and PCI addresses: `nvidia-smi topo -m` and an NCCL topology file in
# https://github.com/NVIDIA/nccl/issues/1505; NVSwitches at c4 to c9 there.
AT_NODE = {1: "47 4e", 3: "07 0f", 5: "b7 bd", 7: "87 90"}
DGX_A100 = [[Numa(k, f"{16 * k}-{16 * k + 15},{16 * k + 128}-{16 * k + 143}", 2,
                  addresses(AT_NODE[k]) if k in AT_NODE else (),
                  [(address, NVSWITCH) for address in addresses("c4 c5")] if k == 5 else ())
             for k in range(first, first + 4)] for first in (0, 4)]


def dgx_h100(smt):
    """PCI addresses: https://github.com/easydiffusion/torchruntime/issues/24 (a DGX H200, which is built alike). CPUs
    of two processors of 56 cores: `nvidia-smi topo -m` in https://github.com/NVIDIA/go-gpuallocator/issues/17."""
    cpus = ("0-55,112-167", "56-111,168-223") if smt == 2 else ("0-55", "56-111")
    return [[Numa(0, cpus[0], smt, addresses("1b 43 52 61"))],
            [Numa(1, cpus[1], smt, addresses("9d c3 d1 df"))]]


# MareNostrum 5 ACC: cores and NUMA nodes of the GPUs from https://co-design.pop-coe.eu/experiments/gpu-affinity/
# mare-nostrum-5.html. PCI addresses are made up.
MARENOSTRUM = [[Numa(0, "0-39", 1, addresses("16 2c"))], [Numa(1, "40-79", 1, addresses("b4 c6"))]]

# LUMI-G: https://docs.lumi-supercomputer.eu/hardware/lumig/, NUMA nodes of the GPUs in PCI order from
# https://co-design.pop-coe.eu/experiments/gpu-affinity/lumi.html; Frontier's nodes are alike, see
# https://docs.olcf.ornl.gov/systems/frontier_user_guide.html. The order of the GPUs is not that of the nodes.
LUMI = [[Numa(k, f"{16 * k}-{16 * k + 15},{16 * k + 64}-{16 * k + 79}", 2, addresses(buses))
         for k, buses in enumerate(["d1 d6", "c9 ce", "d9 de", "c1 c6"])]]

# Four GH200 in one node, as in Alps: each GPU's memory is a NUMA node without CPUs and has seven numbers more for MIG,
# 36 in all (https://github.com/NVIDIA/mlperf-common/pull/16), and 72 cores without hyperthreads
# (https://arxiv.org/abs/2408.11556). hwloc puts such memory beside that of the processor.
GH200_QUAD = [[Numa(k, f"{72 * k}-{72 * k + 71}", 1, addresses("01", f"00{k}9"), memory_only=[4 + 8 * k])]
              for k in range(4)]

# A server without GPUs, and a console that is none.
PLAIN = [[Numa(0, "0-7", 1)], [Numa(1, "8-15", 1)]]

# Made up: two packages of one CPU, which any machine with two CPUs can stand in for, and the first GPUs at the second
# package, so that they have to change places.
TWO_CPUS = [[Numa(0, "0", gpus=["0000:81:00.0", "0000:82:00.0"])], [Numa(1, "1", gpus=["0000:11:00.0", "0000:12:00.0"])]]

MACHINES = [
    Machine("dgx-1", DGX_1, V100, minors=[3, 2, 1, 0, 7, 6, 5, 4]),
    Machine("dgx-a100", DGX_A100, A100),
    Machine("dgx-h100", dgx_h100(2), H100),
    Machine("smt-off", dgx_h100(1), H100),
    Machine("two-socket-4gpu", MARENOSTRUM, H100),
    Machine("eight-gpu-two-per-numa", LUMI, MI250X),
    Machine("gh200-quad", GH200_QUAD, GH200),
    # Eight CPUs of a DGX-1, as hwloc sees it inside such a cgroup.
    Machine("cgroup-subset", DGX_1, V100, minors=[3, 2, 1, 0, 7, 6, 5, 4], allowed="0-3,20-23"),
    Machine("two-cpus", TWO_CPUS, H100),
    Machine("none", PLAIN, None, other=[("0000:03:00.0", CONSOLE)]),
]

if __name__ == "__main__":
    for machine in MACHINES:
        machine.write()
