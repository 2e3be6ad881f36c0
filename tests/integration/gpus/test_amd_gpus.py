"""GPUs of AMD: the lists of tasks, RCCL and HIP with their doubles, and the user's own lists."""

import pytest

from built_files import inside
from communicator_steps import answers, run, whole
from gpu_cases import OUR_MODES, basic_cases, placed
from harness import Cluster, module_cluster, our_lines
from preload_steps import run_steps
from test_gpus import ONE_NODE, Runner

LISTS = "echo $SLURM_LOCALID HIP=${HIP_VISIBLE_DEVICES-} CUDA=${CUDA_VISIBLE_DEVICES-} ROCR=${ROCR_VISIBLE_DEVICES-} own=${BOOTSTRAP_GPU-}"

amd = module_cluster("gpus-amd", "--nodes", "1", "--gpus", "4", "--gpu-env", "amd")


def lists(cluster: Cluster, variables: str, options: str) -> tuple[list[str], list[str]]:
    """The variables of the two tasks of a step, and our lines."""
    done = run_steps(cluster, f"{variables} srun -Q -K0 -N1 -n2 {options} sh -c '{LISTS}'")
    return sorted(done.stdout.splitlines()), our_lines(done)


def test_each_task_has_its_list_of_gpus(amd):
    runner = Runner(amd, variable="ROCR_VISIBLE_DEVICES")
    cases = [placed(case, ONE_NODE) for mode in OUR_MODES for case in basic_cases(mode)[:5:2]]
    wrong = [outcome for outcome in runner.run_all(cases) if outcome.trouble]
    assert not wrong, "\n" + "\n".join(outcome.text for outcome in wrong)


def test_slurms_list_below_the_users_is_restored(amd):
    """HIP counts the user's CUDA_VISIBLE_DEVICES within Slurm's own list. Without Slurm's list it would count all GPUs of the node."""
    seen, said = lists(amd, "CUDA_VISIBLE_DEVICES=1,0", "--bootstrap=on --gpus-per-task=1")
    assert seen == [f"{task} HIP= CUDA=1,0 ROCR=0,1 own={task}" for task in (0, 1)] and not said
    control, _ = lists(amd, "SLURM_GPU_BIND=none CUDA_VISIBLE_DEVICES=1,0", "--bootstrap=off --gpus-per-task=1")
    assert control == [f"{task} HIP= CUDA=1,0 ROCR= own=" for task in (0, 1)]


@pytest.mark.parametrize("hip, options, seen", [
    ("1,0", "--gres=gpu:2", "HIP=1,0 CUDA= ROCR=0,1 own="),
    ("0", "--gpus-per-task=1", "HIP=0 CUDA= ROCR=%d own="),
    ("0,1,2,3", "--gres=gpu:2", "HIP=0,1,2,3 CUDA= ROCR=0,1 own=%d"),  # all GPUs
    ("0,1,2,3", "--gpus-per-task=1", "HIP=0,1,2,3 CUDA= ROCR=0,1 own=%d"),
])  # fmt: skip
def test_slurms_list_below_the_users_hip_list_stays(amd, hip, options, seen):
    users = f"HIP_VISIBLE_DEVICES={hip}"
    assert lists(amd, users, f"--bootstrap=on {options}") == ([f"{task} {seen.replace('%d', str(task))}" for task in (0, 1)], [])
    unasked = lists(amd, f"unset SLURM_BOOTSTRAP; {users}", options)
    assert len(unasked[0]) == 2 and unasked == lists(amd, users, f"--bootstrap=off {options}")


def test_slurms_list_below_the_users_is_not_narrowed(amd):
    """HIP would count within one GPU, find no number 1, and show no GPU."""
    seen, said = lists(amd, "HIP_VISIBLE_DEVICES=1,0", "--bootstrap=on --bootstrap-gpu=narrow --gres=gpu:2")
    assert not seen and len(said) == 1 and "narrow does not work with your HIP_VISIBLE_DEVICES" in said[0], said
    seen, said = lists(amd, "HIP_VISIBLE_DEVICES=0,1,2,3", "--bootstrap=on --bootstrap-gpu=narrow --gres=gpu:2")
    assert seen == [f"{task} HIP=0,1,2,3 CUDA= ROCR={task} own=0" for task in (0, 1)] and not said


def rccl() -> str:
    return ":".join(inside(f"tests/doubles/{folder}") for folder in ("rccl-2.27.7", "nccl-2.28.9", "hip"))


def test_rccl_makes_a_communicator(amd):
    """Both libraries can be loaded: the list of the step decides."""
    variables = {"LD_LIBRARY_PATH": f"{inside('libbootstrap')}:{rccl()}", "CUDA_DOUBLE_DEVICES": "", "HIP_DOUBLE_DEVICES": "4",
                 "NCCL_DOUBLE_LOG": "/home/alice/rccl.log"}
    done = run(amd, 1, 4, inside("tests/integration/comm_probe"), env=variables, options=("--mpi=pmix", "--gres=gpu:4"))
    assert answers(done) == whole([[0, 1, 2, 3]])
    log = (amd.home / "rccl.log").read_text()
    assert log.count("ncclCommInitRank ranks=4") == 4 and log.count("version=22707") == len(log.splitlines()), log
