"""Near GPUs and near cores on a real cluster: two NUMA nodes with one CPU each, which are CPUs 0 and 1 of this machine. The first two
GPUs are near CPU 1 and the last two near CPU 0, by files of /sys and /proc that the node sees in place of its own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from built_files import COMMAND, PROBE, built
from layout_oracle import read_reports

HERE = built("libbootstrap/slurm-bootstrap")  # outside of a cluster
NEAR = {"0": {2, 3}, "1": {0, 1}}  # GPUs by CPU
NUMA_NODES = """
for place in /proc/driver /sys/bus/pci/devices /sys/devices/system/node; do mount -t tmpfs files $place; done
for cpu in 0 1; do
  mkdir /sys/devices/system/node/node$cpu && echo $cpu >/sys/devices/system/node/node$cpu/cpulist
  echo $((cpu + 1)) >/sys/devices/system/node/node$cpu/cpumap
done
echo 0-1 >/sys/devices/system/node/online
"""
FILES = NUMA_NODES + """
for gpu in 0 1 2 3; do
  pci=0000:1$gpu:00.0
  mkdir -p /proc/driver/nvidia/gpus/$pci /sys/bus/pci/devices/$pci
  printf 'Model: \t\t NVIDIA H100\nDevice Minor: \t %s\n' $gpu >/proc/driver/nvidia/gpus/$pci/information
  echo $((gpu < 2)) >/sys/bus/pci/devices/$pci/numa_node
done
"""

OWN = [" and ".join(f"GPU {gpu} (0000:1{gpu}:00.0, /dev/nvidia{gpu}, NVIDIA H100, NUMA node {int(gpu < 2)})" for gpu in pair)
       for pair in ((0, 1), (2, 3))]  # fmt: skip


class Node:
    """One node with four GPUs; `run` returns the reports of a step's tasks, in order of rank."""

    def __init__(self, cluster):
        self.cluster, self.count = cluster, 0

    def change(self, script):
        self.cluster.succeed(["sh", "-ec", script], user="root", node="node001")

    def run(self, *options, program=()):
        self.count += 1
        out = f"/home/alice/near/{self.count}"
        self.cluster.run(["mkdir", "-p", out])
        done = self.cluster.succeed(["srun", "-N1", "--gres=gpu:4", *options, *(program or (PROBE, out, "gpus"))])
        reports = read_reports(Path(f"{self.cluster.state}{out}"))
        return sorted(reports, key=lambda report: int(report["SLURM_PROCID"])), done


@pytest.fixture(scope="module")
def node(cluster_factory):
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    cluster = cluster_factory("near")
    cluster.up("--nodes", "1", "--gpus", "4", "--cpus", "2", "--sockets", "2", "--constrain-devices",
               "--set", "TaskPlugin=task/cgroup,task/affinity")
    node = Node(cluster)
    node.change(FILES)
    return node


def own_gpus(report):
    """Physical GPUs of a task: the step has all four, so the list's numbers are those of the node."""
    entries = [int(entry) for entry in report["CUDA_VISIBLE_DEVICES"].split(",")]
    places = report.get("BOOTSTRAP_GPUS", report["BOOTSTRAP_GPU"])
    return {entries[int(place)] for place in places.split(",")}


@pytest.mark.parametrize("options", [[], ["--cpu-bind=map_cpu:1,0"], ["--cpu-bind=map_cpu:0,1"], ["--cpu-bind=cores"],
                                     ["--bootstrap-gpu=first"], ["--bootstrap-gpu=narrow"],
                                     ["--bootstrap-gpu=first", "--gpus-per-task=2"]])
def test_each_task_gets_the_gpus_near_its_cores(node, options):
    reports, _ = node.run("-n2", *options)
    assert {report["@cpus"] for report in reports} == {"0", "1"}
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_control_without_the_driver_they_are_far(node):
    node.change("mv /proc/driver/nvidia /proc/driver/none")
    reports, _ = node.run("-n2")
    node.change("mv /proc/driver/none /proc/driver/nvidia")
    assert any(own_gpus(report) != NEAR[report["@cpus"]] for report in reports)


def test_one_task_has_the_nearest_gpu_first(node):
    for cpu in "01":
        (report,), _ = node.run("-n1", "-c2", f"--cpu-bind=map_cpu:{cpu}")
        assert int(report["CUDA_VISIBLE_DEVICES"].split(",")[0]) in NEAR[cpu]


def test_unbound_tasks_get_groups_of_neighbours_and_are_bound_only_if_asked(node):
    reports, _ = node.run("-n2", "--cpu-bind=none")
    assert {report["@cpus"] for report in reports} == {"0,1"}
    assert all(own_gpus(report) in NEAR.values() for report in reports)
    reports, _ = node.run("-n2", "--cpu-bind=none", "--bootstrap-cpu=near")
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_a_task_whose_cores_are_all_far_keeps_them(node):
    reports, _ = node.run("-n2", "--cpu-bind=map_cpu:0,0", "--bootstrap-cpu=near")
    assert [report["@cpus"] for report in reports] == ["0", "0"]


@pytest.mark.parametrize("options, lines", [
    ("-n2", [f"{{}} on node001: {OWN[1 - cpu]}; runs on cores {cpu}; can use GPUs 0-3" for cpu in range(2)]),
    ("-n2 --cpu-bind=map_cpu:0,0 --bootstrap-gpu=narrow",
     [f"{{}} on node001: {OWN[0]}; runs on cores 0, far from it; can use GPUs 0-1",
      f"{{}} on node001: {OWN[1]}; runs on cores 0; can use GPUs 2-3"]),
    ("-n2 --gpu-bind=map_gpu:3,1 --cpu-bind=none",
     ["{} on node001: GPU 3 (0000:13:00.0, /dev/nvidia3, NVIDIA H100, NUMA node 0); runs on cores 0-1, far from it; can use GPUs 3",
      "{} on node001: GPU 1 (0000:11:00.0, /dev/nvidia1, NVIDIA H100, NUMA node 1); runs on cores 0-1, far from it; can use GPUs 1"]),
    ("-n2 --bootstrap=off", [f"{{}} on node001: no GPU of its own; runs on cores {cpu}; can use GPUs 0-3" for cpu in "01"]),
])  # fmt: skip
def test_explain_shows_the_gpu_of_each_rank(node, options, lines):
    _, done = node.run(*options.split(), program=(COMMAND, "explain", "--gpus"))
    ranks = (f"rank {rank} (local rank {rank})" for rank in range(2))
    assert sorted(done.stdout.splitlines()) == [line.format(rank) for line, rank in zip(lines, ranks)], done


def test_explain_names_a_task_with_gpus_and_one_core(node):
    line = "has one core and 2 GPUs: data loaders share this core with the training; use srun --cpus-per-task=N"
    shown = {}
    for options in ("-n2", "-n1 -c2"):
        _, done = node.run(*options.split(), "--bootstrap=explain", program=(COMMAND, "explain", "--rank", "0"))
        shown[options] = [line in " ".join(text.split()) for text in (done.stdout, done.stderr)]
    assert shown == {"-n2": [True, True], "-n1 -c2": [False, False]}


# The program that `near` starts asks the kernel for its CPUs and its memory policy. The machine has one real NUMA node, so
# only the memory of node 0 can be preferred.
KERNEL = r'''echo "$(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)" \
"$(sed -n '1s/^[^ ]* \([a-z]*\).*/\1/p' /proc/self/numa_maps)" "GPU ${BOOTSTRAP_GPU-$CUDA_VISIBLE_DEVICES}" "OMP ${OMP_NUM_THREADS-}"'''
ON_0, ON_1, ON_BOTH = ("0", "prefer"), ("1", "default"), ("0-1", "prefer")
KEEPS = "warning: keeps the cores of your --cpu-bind={}; use --force for those near the GPU"


def start_near(node, options, *near, program=("sh", "-c", KERNEL), **more):
    return node.cluster.succeed(["srun", "-N1", "--gres=gpu:4", *options.split(), COMMAND, "near", *near, *program], **more)


@pytest.mark.parametrize("options, near, places, said", [
    # GPUs 0 and 1 are near CPU 1, GPUs 2 and 3 near CPU 0. Slurm binds task i to CPU i.
    ("-n2 --gpus-per-task=2 --bootstrap=off", [], [ON_1, ON_0], ""),
    ("-n2 --bootstrap=on --cpu-bind=none", [], [ON_1, ON_0], ""),
    ("-n2 --bootstrap-gpu=narrow", ["--exclusive"], [ON_0, ON_1], ""),
    ("-n2 --bootstrap=off", [], [ON_BOTH, ON_BOTH], "too few cores of the step are near its GPU; it has others, too: 0-1"),
    ("-n2 --bootstrap=off", ["--exclusive"], [ON_0, ON_1], "too few cores of the step are near its GPU"),
    ("-n2 --cpu-bind=cores", [], [("0", "default"), ON_1], KEEPS.format("cores")),
    ("-n2 --cpu-bind=sockets", [], [("0", "default"), ON_1], KEEPS.format("sockets")),
    ("-n2 --cpu-bind=mask_cpu:2,2", [], [ON_1, ON_1], KEEPS.format("mask_cpu:2,2")),
    ("-n2 --bootstrap=on --cpu-bind=map_cpu:0,0", [], [("0", "default")] * 2, KEEPS.format("map_cpu:0,0")),
    ("-n2 --bootstrap=on --cpu-bind=map_cpu:0,0", ["--force"], [ON_1, ON_0], ""),
])  # fmt: skip
def test_near_binds_to_the_cores_near_the_gpu(node, options, near, places, said):
    done = start_near(node, options, *near)
    assert sorted(tuple(line.split()[:2]) for line in done.stdout.splitlines()) == sorted(places), done
    others = re.sub(r"slurm-bootstrap near: rank .: warning: cannot prefer the memory of its cores: Invalid argument\n", "", done.stderr)
    assert said in others and bool(said) == ("slurm-bootstrap near" in others), done


def test_near_replaces_our_thread_count_and_keeps_the_users(node):
    """A task has both CPUs, and near leaves it one. The user's own count stays."""
    line = ["srun", "-n1", "-c2", "--gres=gpu:1", "--cpu-bind=none", "--bootstrap=on", "env", "-u", "SLURM_CPUS_PER_TASK"]
    show = ["sh", "-c", "echo $OMP_NUM_THREADS"]
    counts = [node.cluster.run([*line, *words, *show], env=env).stdout.strip()
              for words, env in (([], {}), ([COMMAND, "near"], {}), ([COMMAND, "near"], {"OMP_NUM_THREADS": "7"}))]  # fmt: skip
    assert counts == ["2", "1", "7"]


def test_near_shows_the_far_rank_first(node):
    done = start_near(node, "-n2 --bootstrap-gpu=narrow --cpu-bind=map_cpu:0,0", "--show", program=())
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["rank", "0", "1", "1"], done
    assert "0000:10:00.0,0000:11:00.0" in lines[1] and "same NUMA node" in lines[2]
    assert lines[3].startswith("1 of 2 ranks may run on cores far from the GPU: start the program with slurm-bootstrap near")
    check = node.cluster.run(["srun", "-n2", "--gres=gpu:4", "--bootstrap-gpu=narrow", "--cpu-bind=map_cpu:0,0", COMMAND, "check"]).stdout
    assert re.search(r"GPU places +warning +these ranks run on cores far from their GPU", check), check


@pytest.mark.full
@pytest.mark.parametrize("launcher", ["torchrun --nproc_per_node=4 --no_python", "mpirun -np 2"])
def test_near_works_below_another_launcher(node, launcher):
    """Workers 0 and 1 have GPUs at CPU 1, workers 2 and 3 at CPU 0. Two workers of one core may use both; --exclusive gives each one."""
    is_torchrun = launcher.startswith("torchrun")
    start = ["srun", "-n1", "-c2"] if is_torchrun else ["salloc", "-n2", "-Q"]
    line = [*start, "--gres=gpu:4", *launcher.split(), COMMAND, "near", *(["--exclusive"] * (not is_torchrun)), "sh", "-c", KERNEL]
    done = node.cluster.run(line, env={"PET_REDIRECTS": "9:1", "PET_TEE": "9:1", "OMP_NUM_THREADS": "1"})
    expected = [ON_BOTH] * 4 if is_torchrun else [ON_0, ON_1]
    assert sorted(tuple(line.split()[:2]) for line in done.stdout.splitlines()) == expected, done


def test_near_loads_no_plugin_and_leaves_variables_of_hwloc(node):
    variables = {"HWLOC_XMLFILE": "/nonexistent", "HWLOC_PLUGINS_PATH": "/usr/lib"}
    done = start_near(node, "-n1 -c2 --cpu-bind=none", program=("env",), env=variables)
    assert {f"{name}={value}" for name, value in variables.items()} <= set(done.stdout.splitlines())
    traced = subprocess.run(["strace", "-f", "-e", "trace=openat", HERE, "near", "true"], capture_output=True, text=True, check=True)
    libraries = set(re.findall(r'/([^/"]+\.so[^/"]*)", \S+ = \d', traced.stderr.replace("|", "")))
    assert {name.split(".")[0] for name in libraries} <= {"libhwloc", "libudev", "libcap", "libstdc++", "libgcc_s", "libc", "libm", "ld"}, libraries


def test_near_prints_the_mapping_of_a_file(tmp_path):
    """Two packages with a GPU each, in reverse order: hwloc needs only 20 lines for them."""
    def sets(mask):
        return " ".join(f'{name}="{mask}"' for name in ("cpuset", "complete_cpuset", "nodeset", "complete_nodeset"))

    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">', '<topology version="2.0">',
             f'<object type="Machine" os_index="0" {sets("0x3")} allowed_cpuset="0x3" allowed_nodeset="0x3">']  # fmt: skip
    for index, bus in enumerate(("9d", "1b")):
        own = f'os_index="{index}" {sets(hex(1 << index))}'
        lines += [f'<object type="Package" {own}>', f'<object type="NUMANode" {own} local_memory="1048576"/>', f'<object type="Core" {own}>',
                  f'<object type="PU" {own}/>', "</object>", f'<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[{bus}-{bus}]">',
                  f'<object type="PCIDev" pci_busid="0000:{bus}:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1"/>', "</object>", "</object>"]
    node = tmp_path / "node.xml"
    node.write_text("\n".join([*lines, "</object>", "</topology>", ""]))
    done = subprocess.run([HERE, "near", "--topology", node, "--tasks", "2"], capture_output=True, text=True, check=False)
    assert [line.split()[:4] for line in done.stdout.splitlines()[1:3]] == [["0", "1", "1", "0000:1b:00.0"], ["1", "0", "0", "0000:9d:00.0"]], done
    wrong = subprocess.run([HERE, "near", "--topology", "/dev/null"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (1, "slurm-bootstrap: hwloc cannot read /dev/null\n")


# A GPU and three network cards; the second card is at the other NUMA node.
CARDS = NUMA_NODES + r'''mount -t tmpfs files /sys/class
mount -t tmpfs devices /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/nvidia0 c 1 3
while read -r pci vendor class node card; do
  folder=/sys/bus/pci/devices/0000:$pci:00.0
  mkdir -p $folder && echo $vendor >$folder/vendor && echo $class >$folder/class && echo $node >$folder/numa_node
  for name in device subsystem_vendor subsystem_device; do echo 0x1 >$folder/$name; done
  echo $((node + 1)) >$folder/local_cpus && printf '%64s' '' | tr ' ' '\0' >$folder/config
  [ -z "$card" ] || { mkdir -p /sys/class/infiniband/$card && ln -s ../../../bus/pci/devices/0000:$pci:00.0 /sys/class/infiniband/$card/device; }
done <<DEVICES
11 0x10de 0x030200 1
12 0x15b3 0x020000 1 mlx5_0
13 0x15b3 0x020000 0 mlx5_1
14 0x15b3 0x020000 1 mlx5_2
DEVICES
mkdir -p /proc/driver/nvidia/gpus/0000:11:00.0 && printf 'Device Minor: \t 0\n' >/proc/driver/nvidia/gpus/0000:11:00.0/information
exec "$@"'''


def test_near_sets_all_near_cards_for_ucx_on_request():
    def cards(*options, **variables):
        line = ["unshare", "-m", "bash", "-ec", CARDS, "bash", HERE, "near", *options, "sh", "-c", "echo $UCX_NET_DEVICES"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | variables
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done
        return set(filter(None, done.stdout.strip().split(",")))

    assert cards() == set()
    assert cards("--cards", "ucx") == {"mlx5_0:1", "mlx5_2:1"}
    assert cards("--cards=ucx", UCX_NET_DEVICES="eth0") == {"eth0"}
