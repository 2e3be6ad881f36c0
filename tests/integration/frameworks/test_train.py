"""The example ./train on real clusters: any number of ranks has the losses of one process, and all ranks end alike."""

import re
import subprocess

import pytest

from built_files import BUILD, BUILT_INSIDE, TRAIN, built, inside
from checks.pages import read_page
from harness import REPOSITORY, module_cluster, run_here, succeed_here

# Sums of the same numbers in another order: with 1 to 32 ranks the losses were equal in all of the six digits printed.
TOLERANCE = 2e-6

ENDED = re.compile(r"final loss (\S+) \(it was (\S+)\) and parameters (\w{16}) on all (\d+) ranks, (\S+) ms per step")


class Training:
    """The output of rank 0."""

    def __init__(self, stdout):
        assert (ended := ENDED.search(stdout)), stdout
        self.path = stdout.splitlines()[0]
        self.rows = [tuple(line.split()) for line in stdout.splitlines() if re.match(r"\d+ +\S+ +\d+ +\d+ +\S+$", line)]
        self.losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)$", stdout, re.MULTILINE)]
        self.final, self.first, self.size = float(ended[1]), float(ended[2]), int(ended[4])
        assert self.losses

    def differs_from(self, other):
        """The largest difference between printed losses."""
        assert len(self.losses) == len(other.losses)
        pairs = [*zip(self.losses, other.losses), (self.final, other.final), (self.first, other.first)]
        return max(abs(one - two) for one, two in pairs)


@pytest.fixture(scope="module")
def train():
    """The path of ./train inside every cluster."""
    return inside(TRAIN)


def run_alone(*options):
    done = succeed_here([built(TRAIN), *options], timeout=60, env={})
    return Training(done.stdout)


@pytest.fixture(scope="module")
def one_process(train):
    return run_alone()


def start(cluster, train, *srun, options=()):
    done = cluster.succeed(["timeout", "60", "srun", *srun, train, *options], timeout=90)
    return Training(done.stdout)

# Made by `scripts/cluster up` without an option; no step asks.
unasked_cluster = module_cluster("unasked", asks=False)


def test_an_unasked_world_trains(unasked_cluster, train, one_process):
    done = unasked_cluster.run(["timeout", "60", *f"srun --ntasks-per-node 2 --gres gpu:2 {train}".split()])
    training = Training(done.stdout)
    assert done.returncode == 0 and [row[:4] for row in training.rows] == [("0", "node001", "0", "2"), ("1", "node001", "1", "2")]
    assert training.differs_from(one_process) <= TOLERANCE
    assert "gave it no GPU" not in done.stdout, "a rank of an unasked world has a GPU of its own"


@pytest.mark.parametrize("mpi", [(), ("--mpi=pmix",)])
def test_the_example_trains_with_the_plugin(wide_cluster, train, one_process, mpi):
    """The line of the README, word for word."""
    training = start(wide_cluster, train, *mpi, "-N2", "--ntasks-per-node", "2", "--gres", "gpu:2")
    assert [row[:4] for row in training.rows] == [
        ("0", "node001", "0", "4"), ("1", "node001", "1", "4"), ("2", "node002", "0", "4"), ("3", "node002", "1", "4")
    ]
    assert training.differs_from(one_process) <= TOLERANCE
    assert training.final < training.first / 5


@pytest.mark.parametrize("nodes, ranks", [(1, 1), (1, 2), (2, 2), (2, 3), (2, 8)])
def test_the_example_trains_without_the_plugin(cluster, train, one_process, nodes, ranks):
    training = start(cluster, train, f"-N{nodes}", f"-n{ranks}", "--gres", "gpu:2")
    assert training.size == len(training.rows) == ranks
    assert len({row[1] for row in training.rows}) == nodes
    assert len({(row[1], row[2]) for row in training.rows}) == ranks  # each local rank once on a host
    assert training.differs_from(one_process) <= TOLERANCE


def test_control_another_batch_size_is_noticed(one_process):
    """Control: the comparison above notices a gradient without one sample of 256."""
    assert run_alone("--batch", "255").differs_from(one_process) > 100 * TOLERANCE


def test_more_ranks_than_samples_train(cluster, train):
    few = ("--batch", "3", "--steps", "10", "--hidden", "8")
    training = start(cluster, train, "-N2", "--ntasks-per-node", "4", options=few)
    assert training.size == 8
    assert training.differs_from(run_alone(*few)) <= TOLERANCE


@pytest.mark.parametrize("odd", [0, 3])
def test_a_rank_with_other_parameters_is_noticed(cluster, train, odd):
    script = f"exec {train} --steps 5 --seed $((SLURM_PROCID == {odd} ? 7 : 1))"
    done = cluster.run(["timeout", "60", "srun", "--mpi=pmix", "-N2", "--ntasks-per-node", "2", "bash", "-c", script])
    assert done.returncode != 0
    assert "final loss" not in done.stdout
    named = set(re.findall(r"train: rank (\d) ended with loss", done.stderr))
    assert named == ({"1", "2", "3"} if odd == 0 else {"3"}), done.stderr


def test_the_error_without_pmix_and_pmi1_names_the_option(cluster, train):
    blind = ["env", "-u", "SLURM_SRUN_COMM_PORT", train]
    done = cluster.run(["timeout", "60", "srun", "-N2", "--ntasks-per-node", "1", *blind])
    assert done.returncode != 0
    assert "loss" not in done.stdout
    assert "srun --mpi=pmix" in done.stderr


def test_a_rank_that_cannot_read_its_step_does_not_train_alone(cluster, train):
    done = cluster.run(["timeout", "60", "srun", "--mpi=pmix", "-n2", "env", "-u", "SLURM_STEP_NODELIST", train])
    assert done.returncode != 0
    assert "loss" not in done.stdout and "train: " in done.stderr
    # Control: in a batch script, which has no step, it does train alone.
    alone = cluster.run(["salloc", "-Q", "-n1", train])
    assert alone.returncode == 0 and "no task of a Slurm step" in alone.stdout, alone.stderr


def test_the_example_of_the_manual_page_works(cluster, train, tmp_path):
    """The first program in bootstrap(3), compiled and started as described there."""
    program = next(block.text for block in read_page(REPOSITORY / "etc/man/bootstrap.3").blocks if block.kind == "c")
    (tmp_path / "example.c").write_text(program)
    words = ["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example"]
    words += [f"-I{REPOSITORY}/libbootstrap/include", f"-L{REPOSITORY}/{BUILD}/libbootstrap", "-lbootstrap"]
    words += [f"-Wl,-rpath,{BUILT_INSIDE}/libbootstrap"]
    subprocess.run(words, check=True, cwd=tmp_path, timeout=60)
    path = cluster.write_home("example", "")
    (cluster.home / "example").write_bytes((tmp_path / "example").read_bytes())
    done = cluster.succeed(["timeout", "30", "srun", "--mpi=pmix", "-N2", "--ntasks-per-node", "2", path])
    said = done.stdout.splitlines()
    assert len(said) == 16 and len(set(said)) == 4  # every rank prints the same four lines
    assert {line.split(":")[0] for line in said} == {f"rank {rank}" for rank in range(4)}


@pytest.mark.gpu
def test_the_example_trains_on_gpus(gpu_cluster, gpus, train):
    """The C++ example on one node gives the losses of the CPUs, each rank on its own GPU"""
    # Up to rounding and another tanh.
    count = str(len(gpus))
    training = start(gpu_cluster, train, "-n", count, f"--gres=gpu:{count}")
    assert training.path == "on GPUs, gradients over NCCL"
    assert [row[4] for row in training.rows] == [f"cuda:{rank}" for rank in range(len(gpus))]
    on_cpu = Training(run_here([built(TRAIN)], timeout=60, env={"CUDA_VISIBLE_DEVICES": ""}).stdout)
    assert on_cpu.path.startswith("on CPUs")
    assert training.differs_from(on_cpu) <= 1e-4


@pytest.mark.gpu
def test_one_rank_without_a_gpu_moves_all_to_cpus(gpu_cluster, gpus, train):
    """The C++ example trains on the CPUs where one rank has no GPU"""
    last = len(gpus) - 1
    script = f"((SLURM_PROCID == {last})) && export CUDA_VISIBLE_DEVICES=; exec {train} --steps 5"
    done = gpu_cluster.succeed(
        ["timeout", "60", "srun", "--mpi=pmix", f"-n{len(gpus)}", f"--gres=gpu:{len(gpus)}", "bash", "-c", script],
        timeout=90)
    assert Training(done.stdout).path.startswith("on CPUs") and f"rank {last} " in done.stdout.splitlines()[0]
