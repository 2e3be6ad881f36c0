"""Every example trains, or measures, when started with the line at its head, word for word, with the real framework."""

import ast
import re
import shlex

import pytest

from built_files import TRAIN, inside
from harness import HAS_PMIX, INSIDE, REPOSITORY, Cluster, wait_for

EXAMPLES = REPOSITORY / "etc/examples"
ALL_REDUCE = "all_reduce.py"
PROGRAMS = sorted(path.name for path in [*EXAMPLES.glob("*.py"), EXAMPLES / "train.cc"])
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.sbatch"))
ENVIRONMENTS = {"horovod": "horovod", "tf": "tensorflow", "jax": "jax"}
HEADS = {".py": '"""', ".cc": "// ", ".sbatch": "# "}
FINAL = re.compile(r"^(?:\[default0\]:|\[0\]<stdout>:)?final loss (\S+) \(it was (\S+)\).* on (?:all )?(\d+) ranks.*", re.M)
LIMIT = 80  # seconds

# Runs the sbatch line $1, waits for the job, and prints its output as srun would, so that a message of PMIx that slurmstepd
# lost is noticed. `sbatch --wait` would poll at ever longer intervals.
SUBMIT = """
said=$($1) && job=${said##* } || exit 90
for ((i = 0; i < $2 * 4; i++)); do [[ -n $(squeue -h -j $job 2>&1) ]] || break; sleep 0.25; done
scancel $job 2>&1
cat *-$job.out; cat *-$job.out >&2
code=$(scontrol show job $job | sed -n 's/.* ExitCode=\\([0-9]*\\):.*/\\1/p')
exit $code
"""


def start_line(name: str) -> str:
    """The first line of the text at the head of an example."""
    lines = (EXAMPLES / name).read_text().splitlines()
    line = lines[1] if lines[0].startswith("#!") else lines[0]
    head = HEADS[name[name.rindex("."):]] + "Start it with: "
    assert line.startswith(head), f"{name}: {line}"
    return line[len(head):]


def environment_of(name: str) -> str:
    """The environment of scripts/frameworks for an example; '' if Debian's packages are enough."""
    return next((environment for word, environment in ENVIRONMENTS.items() if f"_{word}" in name), "")


def with_framework(name: str):
    """The example as a parameter. Frameworks other than Debian's and JAX take minutes to build or to load: marked as full."""
    return pytest.param(name, marks=[pytest.mark.full] if environment_of(name) not in ("", "jax") else [])


@pytest.fixture(scope="module")
def cluster(cluster_factory) -> Cluster:
    cluster = cluster_factory("examples", asks=False).up("--nodes", "3", "--gpus", "4", "--cpus", "16")  # the lines stand for themselves
    for name in [*PROGRAMS, *SCRIPTS]:
        cluster.write_home(name, (EXAMPLES / name).read_text())
    assert cluster.run(["ln", "-s", inside(TRAIN), f"{INSIDE}/etc/examples/ssh-by-srun", "."]).returncode == 0
    return cluster


def start(cluster: Cluster, line: str, folder: str = ""):
    words = shlex.split(line)
    before = ["bash", "-c", 'PATH=$0:$PATH; exec "$@"', folder] if folder else []
    if words[0] == "sbatch":
        if not HAS_PMIX and "--mpi=pmix" in (EXAMPLES / words[1]).read_text():
            pytest.skip("this Slurm was built without PMIx")
        return cluster.run([*before, "bash", "-c", SUBMIT, "bash", line, str(LIMIT)], timeout=LIMIT + 20)
    return cluster.run([*before, "timeout", str(LIMIT), *words], timeout=LIMIT + 20)


def run_example(cluster, environments, name, line):
    environment = environment_of(name)
    return start(cluster, line, environments(environment) if environment else "")


def check_end(done):
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (ended := FINAL.search(done.stdout)), done.stdout
    assert float(ended[1]) < float(ended[2]) / 2
    assert int(ended[3]) == 4
    assert done.stdout.strip().endswith(ended[0])


@pytest.mark.parametrize("name", [with_framework(name) for name in PROGRAMS if name != ALL_REDUCE])
def test_a_program_trains_with_the_line_at_its_head(cluster, environments, name):
    line = start_line(name)
    assert line.startswith("srun ") and line.split()[-1] == ("./train" if name == "train.cc" else name)
    check_end(run_example(cluster, environments, name, line))


@pytest.mark.full
def test_several_worlds_find_each_other_20_times_two_jobs_at_once(cluster):
    """Each job finds its own steps, and not those of the other."""
    line = start_line("several_worlds.sbatch")
    for _ in range(10):
        jobs = [cluster.start(["bash", "-c", SUBMIT, "bash", f"{line} --overcommit --oversubscribe", str(LIMIT)], stdout=-1)
                for _ in range(2)]  # fmt: skip
        places = []
        for job in jobs:
            text = job.communicate(timeout=LIMIT + 20)[0]
            assert job.returncode == 0 and FINAL.search(text), text
            places += re.findall(r"(?:meet|answers) at (\S+:\d+)$", text, re.M)
        assert len(places) == len(set(places)) == 6, places


@pytest.mark.parametrize("name, framework", [("train_jax.py", "JAX"), ("train_tf.py", "TensorFlow")])
def test_a_program_reports_in_one_line_that_its_framework_is_missing(cluster, name, framework):
    done = start(cluster, f"srun -n1 python3 {name}")
    said = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert done.returncode != 0 and len(said) == 1 and said[0].startswith(f"{name} needs {framework}"), done


def test_the_rate_of_all_ranks_is_that_of_one_times_their_number(cluster):
    done = start(cluster, start_line("bench_synthetic.py") + " --iterations 4 --batches 2 --lr 0.02")
    each = re.search(r"^Img/sec per CPU process: ([\d.]+) \+- ([\d.]+)$", done.stdout, re.M)
    total = re.search(r"^Total img/sec on 4 CPU process\(s\): ([\d.]+) \+- ([\d.]+)$", done.stdout, re.M)
    assert each and total, f"{done.stdout}\n{done.stderr}"
    for one, all_four in zip(each.groups(), total.groups()):
        assert 4 * float(one) == pytest.approx(float(all_four), abs=0.25)
    # The ranks are in lock-step, so that rank 0's iterations are about those of all.
    rates = [float(rate) for rate in re.findall(r"^iteration +\d+: ([\d.]+) img/sec", done.stdout, re.M)]
    assert len(rates) == 4 and sum(rates) / 4 == pytest.approx(float(each[1]), rel=0.2)


@pytest.mark.parametrize("fault, status", [("", 0), ("message[-1] += rank == 3", 1)], ids=["right", "a rank sends another number"])
def test_all_reduce_is_timed_and_its_sums_are_verified(cluster, fault, status):
    text = (EXAMPLES / ALL_REDUCE).read_text()
    call = "dist.all_reduce(message.fill_(rank % 8 + 1))"
    assert text.count(call) == 1
    cluster.write_home("timed.py", text.replace(call, f"message.fill_(rank % 8 + 1); {fault}; dist.all_reduce(message)") if fault else text)
    done = start(cluster, start_line(ALL_REDUCE).replace(ALL_REDUCE, "timed.py 4096"))
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()[1:]]
    assert done.returncode == status and [row[0] for row in rows] == [8 << power for power in range(10)], done
    for size, microseconds, algbw, busbw, wrong in rows:
        assert size / microseconds / 1e3 == pytest.approx(algbw, abs=2e-3) and busbw == pytest.approx(algbw * 1.5, abs=2e-3)
        assert wrong == 4 * status  # on each rank the last number


@pytest.mark.parametrize("name", map(with_framework, SCRIPTS))
def test_a_script_trains_when_it_is_submitted(cluster, environments, name):
    line = start_line(name)
    assert line == f"sbatch {name}"
    check_end(run_example(cluster, environments, name, line))


@pytest.mark.full
@pytest.mark.parametrize("options, program", [("", ""), ("--ntasks-per-node=1 --cpus-per-task=2", "torchrun")])
def test_a_training_that_is_requeued_twice_goes_on(cluster, options, program):
    """Once by the signal before the time limit, once by scontrol while it trains."""
    text = (EXAMPLES / "train_checkpoint.sbatch").read_text()
    cluster.write_home("long.sbatch", text.replace("train_checkpoint.py", "train_checkpoint.py --steps 600"))
    line = f"sbatch --parsable --output=long-%j.out {options} long.sbatch {program}"
    job = cluster.run(line.split()).stdout.strip()
    output = cluster.home / f"long-{job}.out"

    def seen():
        return output.read_text() if output.exists() else ""

    def has_trained(starts):
        return "  loss " in "".join(seen().split("start at step")[starts:])

    for number, stop in enumerate((f"scancel --batch --signal=USR1 {job}", f"scontrol requeue {job}")):
        wait_for(lambda: has_trained(number + 1), what="no training")
        assert cluster.run(stop.split()).returncode == 0
        wait_for(lambda: seen().count("saved step") == number + 1, what="not saved")
    wait_for(lambda: has_trained(3) and FINAL.search(seen()), LIMIT, what="no end")
    starts = [int(step) for step in re.findall(r"start at step (\d+) on 4 ranks", seen())]
    saved = [int(step) for step in re.findall(r"saved step (\d+)", seen())]
    assert starts == [0, *saved] and 0 < saved[0] < saved[1] < 600, seen()


def test_a_training_that_stops_in_its_last_step_ends_with_the_next_start(cluster):
    text, call = (EXAMPLES / "train_checkpoint.py").read_text(), "stopped = is_to_stop(device)"
    assert text.count(call) == 1
    cluster.write_home("last.py", text.replace(call, f"signals.extend([1] * (step == arguments.steps)); {call}"))
    line = start_line("train_checkpoint.py").replace("train_checkpoint.py", "last.py --steps 20 --checkpoint last.pt")
    stopped, ended = start(cluster, line), start(cluster, line)
    assert "saved step 20\n" in stopped.stdout and "start at step 20 on 4 ranks\n" in ended.stdout, f"{stopped}\n{ended}"
    assert ended.returncode == 0 and FINAL.search(ended.stdout), ended


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith(".py")])
def test_an_example_is_valid_in_python_3_8(name):
    ast.parse((EXAMPLES / name).read_text(), name, feature_version=(3, 8))


def test_torchrun_without_the_plugin_trains_on_each_node_alone(cluster):
    """Control: only the plugin's variables join the two nodes in one training."""
    debian = "env PET_REDIRECTS=1 PET_TEE=1"  # as in train_torchrun.sbatch
    alone = "srun -N2 --ntasks-per-node 1 --gres gpu:2 --bootstrap=off"
    done = start(cluster, f"{alone} {debian} torchrun train_ddp.py --steps 8")
    assert [ended[3] for ended in FINAL.finditer(done.stdout)] == ["1", "1"], f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("change, complaint", [
    (("LEARNING_RATE = 2.0", "LEARNING_RATE = 0.0"), "the loss did not fall"),
    (("    agree =", "    weights[3] *= 1 + 1e-6 * rank\n    agree ="), "the ranks do not hold the same parameters"),
])
def test_a_training_that_went_wrong_fails(cluster, change, complaint):
    """Control: the tests above can fail."""
    text = (EXAMPLES / "train_mpi4py.py").read_text()
    assert text.count(change[0]) == 1
    cluster.write_home("wrong.py", text.replace(*change))
    done = start(cluster, start_line("train_mpi4py.py").replace("train_mpi4py.py", "wrong.py"))
    assert done.returncode != 0 and complaint in done.stderr, f"{done.stdout}\n{done.stderr}"
