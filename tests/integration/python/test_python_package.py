"""pip's package: one wheel for all Pythons, its types, and its use on a cluster by a user without root."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from built_files import inside
from harness import REPOSITORY, run_here
from python_programs import IDS, JOB, NCCL4PY, OTHER_PYTHON, RIGHT_TYPES, TWO_WORLDS, WRONG_TYPES

STEP = ("srun", "-N2", "--ntasks-per-node=2")
PROGRAM = "/home/alice/program.py"
PYTHON = "/home/alice/venv/bin/python3"
OWN = "own"  # Debian's PyTorch 1.13
PACKAGES = "/home/alice/venv/lib/python3.11/site-packages"
DOUBLE = "tests/doubles/nccl-2.28.9/libnccl.so.2"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built by pip with scikit-build-core from PyPI."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    # The same compiler's line as in the preset `release`, so that ccache has most objects.
    line = [folder / "venv/bin/pip", "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY,
            "--config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON"]
    done = run_here(line, env=os.environ | {"CC": "/usr/bin/cc", "CXX": "/usr/bin/c++"})
    if "scikit-build-core" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("PyPI gave no scikit-build-core")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(cluster_factory, wheel):
    cluster = cluster_factory("python", asks=False).up("--nodes", "2", "--gpus", "2", "--cpus", "8")
    cluster.write_plugstack("")
    shutil.copy(wheel, cluster.home)
    (cluster.home / wheel.name).chmod(0o644)
    install = f"python3 -m venv --system-site-packages ~/venv && ~/venv/bin/pip install --quiet --no-index ~/{wheel.name}"
    cluster.succeed(["bash", "-c", install], timeout=120)
    return cluster


def run(site, text, *options, command=(), env=None):
    site.write_home("program.py", text)
    return site.run([*STEP, *options, *command, PYTHON, PROGRAM], env=env, timeout=120)


def run_in(site, environments, name, text, line=" ".join(STEP) + " python3 PROGRAM", env=None):
    """Runs a program in an environment of scripts/frameworks, with this package in PYTHONPATH as after pip's --target; or in the
    user's own environment."""
    site.write_home("program.py", text)
    folder, env = Path(PYTHON).parent, {"OMP_NUM_THREADS": "1"} | (env or {})
    if name != OWN:
        folder, env["PYTHONPATH"] = environments(name), PACKAGES
    return site.run(["bash", "-c", f"PATH={folder}:$PATH\n{line.replace('PROGRAM', PROGRAM)}"], env=env, timeout=180)


def test_the_wheel_has_no_compiled_extension(wheel):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    names = zipfile.ZipFile(wheel).namelist()
    assert {"slurm_bootstrap/py.typed", "slurm_bootstrap/libbootstrap.so.0", "slurm_bootstrap/slurm-bootstrap"} <= set(names)


PYTHONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]
TOO_OLD = "3.8"


def find_python(version):
    """The path of this Python, from PATH or pyenv."""
    for path in (*Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), shutil.which(f"python{version}")):
        if path and subprocess.run([path, "-c", "import pip"], capture_output=True).returncode == 0:
            return str(path)
    return None


def install_for(python, wheel, folder):
    return run_here([python, "-m", "pip", "install", "--no-index", "--no-deps", "--target", folder, wheel])


@pytest.fixture(scope="module")
def other_pythons(site, wheel):
    """The output of a step in which each rank has another Python: {version: line}. It runs as root, whose home may have pyenv."""
    site.write_home("program.py", OTHER_PYTHON)
    found = {version: python for version in PYTHONS if (python := find_python(version))}
    if not found:
        pytest.skip("there is no Python of these versions with pip")
    lines = []
    for rank, (version, python) in enumerate(found.items()):
        done = install_for(python, wheel, site.home / "of" / version)
        assert done.returncode == 0, done.stderr
        lines.append(f"{rank} /usr/bin/env PYTHONPATH=/home/alice/of/{version} {python} {PROGRAM}\n")
    programs = site.write_home("programs", "".join(lines))
    done = site.succeed(["srun", f"-n{len(lines)}", "--multi-prog", programs], user="root")
    return list(found), {line.split()[0]: line for line in done.stdout.splitlines()}


@pytest.mark.parametrize("version", PYTHONS)
def test_one_wheel_works_in_each_python(other_pythons, version):
    found, said = other_pythons
    if version not in found:
        pytest.skip(f"there is no Python {version}")
    assert said[version] == f"{version} {found.index(version)} {' '.join(found)}"


def test_an_older_python_refuses_the_wheel(wheel, tmp_path):
    python = find_python(TOO_OLD)
    if python is None:
        pytest.skip(f"there is no Python {TOO_OLD}")
    done = install_for(python, wheel, tmp_path)
    assert done.returncode != 0 and "requires a different Python" in done.stderr, done


def test_the_types_of_the_package_are_right(wheel, environments, tmp_path):
    """A user's mypy checks the installed package, and ours its files."""
    def mypy(*arguments):
        line = [f"{environments('python-checks')}/mypy", "--cache-dir", "cache", "--python-executable", python, *arguments]
        return run_here(line, cwd=tmp_path)

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python3"
    [packages] = (tmp_path / "venv/lib").glob("python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (tmp_path / "right.py").write_text(RIGHT_TYPES)
    (tmp_path / "wrong.py").write_text(WRONG_TYPES)
    done = mypy("--strict", "right.py", "wrong.py")
    found = [line.split(":")[:2] for line in done.stdout.splitlines() if ": error: " in line]
    assert found == [["wrong.py", str(number)] for number in (4, 5, 6, 7)], done
    own = mypy("--config-file", REPOSITORY / "pyproject.toml", "-p", "slurm_bootstrap")
    assert own.returncode == 0, own.stdout


@pytest.mark.parametrize("imports, options", [
    pytest.param("slurm_bootstrap, torch", (), id="first-PMI-1"),
    pytest.param("torch, slurm_bootstrap", ("--mpi=pmix",), id="last-PMIx"),
    pytest.param("slurm_bootstrap, torch", ("--mpi=pmix",), id="first-PMIx", marks=pytest.mark.full),
    pytest.param("torch, slurm_bootstrap", (), id="last-PMI-1", marks=pytest.mark.full),
])
def test_pytorch_meets_without_a_port(site, imports, options):
    check_worlds(run(site, two_worlds(imports), *options))


def two_worlds(imports):
    return TWO_WORLDS.replace("IMPORTS", f"import {imports}\nimport torch.distributed as dist")


def check_worlds(done, count=2, has_plugin=False):
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(count // 2 * [
        f"world {world} rank {rank} of 4 sums 15 {9 if rank in (0, 3) else 6} {rank if has_plugin else None}"
        for world in range(2) for rank in range(4)])


HET = "srun -Q -n1 python3 PROGRAM : -n3 python3 PROGRAM"
HET_PMIX = HET.replace("-Q", "-Q --mpi=pmix").replace(":", ": --mpi=pmix")
# scontrol requeue ends its first run.
REQUEUED = """cat > again.sbatch <<'END'
#!/bin/bash
srun -N2 --ntasks-per-node=2 python3 PROGRAM >> again.out 2> again.err || exit
[[ ${SLURM_RESTART_COUNT:-0} == 1 ]] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }
touch again.done
END
rm -f again.done again.out
sbatch --quiet --requeue -N2 --ntasks-per-node=2 --output=again.err again.sbatch
for ((i = 0; i < 900; i++)); do [[ ! -e again.done ]] || break; sleep 0.1; done
cat again.err >&2
cat again.out"""


@pytest.mark.parametrize("line, has_plugin", [
    pytest.param(HET, False, id="components"),
    pytest.param(HET, True, id="components, plugin"),
    pytest.param(" ".join(STEP) + " --gres=gpu:2 python3 PROGRAM", True, id="plugin"),
    pytest.param(HET_PMIX, True, id="components, plugin, PMIx", marks=pytest.mark.full),
    pytest.param(REQUEUED, False, id="requeued", marks=pytest.mark.full),
    pytest.param(REQUEUED, True, id="requeued, plugin", marks=pytest.mark.full),
])
@pytest.mark.parametrize("name", [OWN, *(pytest.param(new, marks=pytest.mark.full) for new in ("pytorch-2.7", "pytorch"))])
def test_pytorch_meets_in_other_steps(site, environments, name, line, has_plugin):
    text = two_worlds("torch, slurm_bootstrap" if name == OWN else "torch")
    with site.other_plugstack(f"optional {site.plugin}\n") if has_plugin else nullcontext():
        done = run_in(site, environments, name, text, line, {"SLURM_BOOTSTRAP": "on"} if has_plugin else None)
    check_worlds(done, 4 if line == REQUEUED else 2, has_plugin)


@pytest.mark.full
def test_control_pytorch_alone_has_no_method_slurm(site):
    """PyTorch before 2.5 needs the import."""
    done = run(site, two_worlds("torch"), env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode != 0 and "No rendezvous handler for slurm://" in done.stderr, done


@pytest.mark.full
@pytest.mark.parametrize("given, sentence", [
    ("rank=0, world_size=4", "slurm://: rank 1 passed another rank or world_size than Slurm's"),
    ("rank=job.rank, world_size=2", "init_process_group has world_size=2, and in this step of Slurm it is 4"),
])
def test_ranks_that_are_not_slurms_are_refused(site, given, sentence):
    done = run(site, "import slurm_bootstrap, torch.distributed as dist\njob = slurm_bootstrap.Job()\n"
                     f"dist.init_process_group('gloo', init_method='slurm://', {given})")
    assert done.returncode != 0 and sentence in done.stderr, done


def test_a_job_knows_its_ranks(site):
    done = run(site, JOB, "--gres=gpu:2")
    assert done.returncode == 0, done.stderr
    places = [f"{rank % 2}/2 {rank // 2}/2" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == [f"{rank}: {places} {rank % 2} node001" for rank in range(4)]


def test_ids_of_nccl_are_the_same_within_a_group(site):
    done = run(site, IDS, env={"SLURM_BOOTSTRAP_NCCL": inside(DOUBLE)})
    assert done.stdout.splitlines() == ["right"] * 4, done.stderr


@pytest.mark.full
def test_a_missing_rank_is_an_exception_with_a_sentence(site):
    done = run(site, "import os, slurm_bootstrap\njob = slurm_bootstrap.Job(timeout=3)\n"
                     "if job.rank != 3:\n  try:\n    job.barrier()\n  except TimeoutError as error:\n"
                     "    os.write(1, f'{type(error).__name__} {error.status} {error}\\n'.encode())\nelse:\n  import time\n  "
                     "time.sleep(8)\n",
               "--mpi=pmix")
    assert len(done.stdout.splitlines()) == 3 and done.stdout.count("BootstrapTimeoutError 8 StepId=") == 3, done
    assert "missing: rank 3 (node002, local rank 1)" in done.stdout, done


def test_outside_a_step_there_is_no_job(site):
    done = site.run([PYTHON, "-c", "import slurm_bootstrap; slurm_bootstrap.Job()"])
    assert done.returncode != 0 and "BootstrapError: " in done.stderr and "start the program with srun" in done.stderr


def test_the_wheel_has_the_command(site):
    done = site.run([*STEP, "/home/alice/venv/bin/slurm-bootstrap", "explain", "--rank", "3"])
    assert done.returncode == 0 and "NOT SET UP" in done.stdout, done


def test_run_gives_an_ordinary_program_its_rank(site):
    text = "import os\nprint(*(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')))"
    done = run(site, text, command=("/home/alice/venv/bin/slurm-bootstrap", "run"))
    assert sorted(done.stdout.splitlines()) == [f"{rank} {rank % 2} 4 node001" for rank in range(4)], done


@pytest.mark.full
@pytest.mark.parametrize("name", ["pytorch-2.7", "pytorch"])
def test_new_pytorch_needs_no_import(site, environments, name):
    check_worlds(run_in(site, environments, name, two_worlds("torch")))


@pytest.mark.full
@pytest.mark.parametrize("env, said", [
    ({}, {"NCCLError: UnhandledCudaError"}),  # NCCL's own error, from its first call of CUDA
    ({"LD_PRELOAD": inside(DOUBLE)}, {f"rank {rank} of 4" for rank in range(4)}),
], ids=["NCCL", "double"])
def test_nccl4py_accepts_our_id(site, environments, env, said):
    done = run_in(site, environments, "pytorch", NCCL4PY, env=env)
    assert done.returncode == 0 and {line.partition(" (")[0] for line in done.stdout.splitlines()} == said, done


@pytest.mark.full
def test_horovod_meets_without_horovodrun(site, environments):
    for program in (REPOSITORY / "tests/integration/frameworks/programs").glob("*.py"):
        if program.name in ("horovod_train.py", "training.py"):
            site.write_home(program.name, program.read_text())
    text = "import sys, slurm_bootstrap, horovod_train\nslurm_bootstrap.horovod()\nsys.argv = ['', 'train']\nhorovod_train.main()\n"
    done = run_in(site, environments, "horovod", text)
    assert done.returncode == 0 and "on 4 ranks" in done.stdout, done
