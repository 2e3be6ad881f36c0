"""The oracle of the GPU tests by itself: it notices each kind of fault in reports made by hand."""

import pytest

from gpu_oracle import Wanted, differences

DEVICES = (2, 3, 5, 7)  # of the step, in /dev; another job has the others


def reports(mode: str, tasks: int, gpus: int = 4) -> list[dict[str, str]]:
    """The right reports of one step on one node."""
    entries, made = list(range(gpus)), []
    for rank in range(tasks):
        own = list(range(rank, gpus, tasks))[:max(1, gpus // tasks)] or [rank % gpus]
        order = {"index": entries, "first": [entries[at] for at in own] + [entry for at, entry in enumerate(entries) if at not in own],
                 "narrow": [entries[at] for at in own], "off": entries}[mode]
        places = own if mode == "index" else list(range(len(own)))
        alone = mode in ("first", "narrow")
        made.append({
            "@host": "node001", "@open": ",".join(map(str, DEVICES[:gpus])), "@hidden": "", "@cpus": "0",
            "SLURM_JOB_ID": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "RANK": str(rank), "WORLD_SIZE": str(tasks),
            "LOCAL_RANK": "0" if alone else str(rank), "LOCAL_WORLD_SIZE": "1" if alone else str(tasks),
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, order)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "SLURM_BOOTSTRAP_STEP": "4.0.0",
            "BOOTSTRAP_GPU": str(places[0]), "BOOTSTRAP_GPUS": ",".join(map(str, places)),
        })  # fmt: skip
        if mode == "off":
            del made[-1]["BOOTSTRAP_GPU"], made[-1]["BOOTSTRAP_GPUS"]
    return made


def judge(step, wanted=Wanted(), twins=(), given=DEVICES):
    """The oracle's verdict, where Slurm gave `given` to the job. Twins ran without the plugin, as another step."""
    plain = [{name: value for name, value in twin.items() if name != "SLURM_BOOTSTRAP_STEP"} | {"SLURM_STEP_ID": "1"} for twin in twins]
    return differences([*step, *plain], {"4": {"node001": set(given)}}, (len(step),), wanted)


WRONG = {
    "RANK": ("index", {"RANK": "2"}, "RANK='2' and not '1'"),
    "WORLD_SIZE": ("index", {"WORLD_SIZE": "5"}, "WORLD_SIZE='5'"),
    "LOCAL_RANK": ("index", {"LOCAL_RANK": "2"}, "LOCAL_RANK='2' and not '1'"),
    "LOCAL_RANK in a list of its own": ("first", {"LOCAL_RANK": "1"}, "LOCAL_RANK='1' and not '0'"),
    "order of devices": ("index", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "CUDA_DEVICE_ORDER"),
    "GPU of another task": ("index", {"BOOTSTRAP_GPU": "0", "BOOTSTRAP_GPUS": "0", "LOCAL_RANK": "0"}, "2 tasks have GPU 2"),
    "LOCAL_RANK is another GPU": ("index", {"BOOTSTRAP_GPU": "2", "BOOTSTRAP_GPUS": "2"}, "set_device(LOCAL_RANK) is 3, BOOTSTRAP"),
    "hidden peers": ("index", {"@open": "3"}, "tasks can open [(2, 3, 5, 7), (3,)]"),
    "list of another order": ("index", {"CUDA_VISIBLE_DEVICES": "1,0,2,3"}, "the lists differ"),
    "peer missing in the list": ("index", {"CUDA_VISIBLE_DEVICES": "0,1,2"}, "4 of [2, 3, 5, 7] belong there"),
    "entry named twice": ("index", {"CUDA_VISIBLE_DEVICES": "0,1,1,2"}, "is no device"),
    "list that ends early": ("index", {"CUDA_VISIBLE_DEVICES": "0,1,9,2"}, "CUDA takes 2 only"),
    "numbers of /dev where cgroups hide": ("index", {"CUDA_VISIBLE_DEVICES": "2,3,5,7"}, "the list has [5, 7]"),
    "no list": ("index", {"CUDA_VISIBLE_DEVICES": None}, "the list has"),
    "no GPU": ("index", {"BOOTSTRAP_GPU": None}, "BOOTSTRAP_GPU=None"),
    "group without its own": ("index", {"BOOTSTRAP_GPUS": "2"}, "is without BOOTSTRAP_GPU=1"),
    "group that overlaps": ("index", {"BOOTSTRAP_GPUS": "1,2"}, "GPU 5 is in 2 groups"),
    "group of another size": ("index", {"BOOTSTRAP_GPUS": "1,2"}, "groups of [1, 2] GPUs"),
    "own GPU not first": ("first", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, "2 tasks have GPU 2"),
    "first without peers": ("first", {"CUDA_VISIBLE_DEVICES": "1"}, "the list has [3], 4 of"),
    "narrow with peers": ("narrow", {"CUDA_VISIBLE_DEVICES": "1,0"}, "the list has [3, 2], 1 of"),
    "off with a GPU of its own": ("off", {"BOOTSTRAP_GPU": "1"}, "BOOTSTRAP_GPU are set"),
    "off with another list": ("off", {"CUDA_VISIBLE_DEVICES": "1,0,2,3"}, "without the plugin it is '0,1,2,3'"),
}


@pytest.mark.parametrize("mode, change, words", WRONG.values(), ids=WRONG)
def test_a_fault_of_one_task_is_noticed(mode, change, words):
    step = reports(mode, 4)
    assert judge(step, Wanted(mode), step) == []
    broken = [dict(task) for task in step]
    broken[1] = {name: value for name, value in (broken[1] | change).items() if value is not None}
    found = judge(broken, Wanted(mode), step)
    assert any(words in line for line in found), found


def test_a_fault_of_a_whole_step_is_noticed():
    def found(step, wanted=Wanted(), **more):
        return "\n".join(judge(step, wanted, **more))

    assert "6 tasks were started on 4 GPUs" in found(reports("index", 6))
    lopsided = [task | {"BOOTSTRAP_GPU": "0", "BOOTSTRAP_GPUS": "0"} for task in reports("index", 6)]
    assert "not balanced" in found(lopsided, Wanted(share=True))
    assert "can open [2, 3, 5, 7], Slurm gave the job [2, 3, 5]" in found(reports("index", 4), given=(2, 3, 5))
    assert "can open [2, 3], Slurm gave the job [2, 3, 5, 7]" in found(reports("index", 2, 2))
    assert "2 of [2, 3, 5, 7] belong to each" in found(reports("index", 2), Wanted(per_node=2))
    assert found(reports("index", 2, 2), Wanted(per_node=2)) == ""
    assert "asked for, [3] reported" in "\n".join(differences(reports("index", 3), {}, (4,), Wanted()))
    other = [task | {"SLURM_STEP_ID": "1", "SLURM_BOOTSTRAP_STEP": "4.1.0"} for task in reports("index", 2)]
    together = differences(reports("index", 2) + other, {"4": {"node001": set(DEVICES)}}, (2, 2), Wanted(apart=True))
    assert "node001: 2 steps at the same time have GPU 2" in together


def test_a_bound_task_keeps_the_gpus_that_slurm_left_it():
    wanted = Wanted(bound=True)
    twins = [task | {"@open": "2,3" if rank < 2 else "5,7", "CUDA_VISIBLE_DEVICES": "0,1"}
             for rank, task in enumerate(reports("first", 4))]
    right = [task | {"CUDA_VISIBLE_DEVICES": "0,1" if rank % 2 == 0 else "1,0"} for rank, task in enumerate(twins)]
    assert judge(right, wanted, twins) == []
    assert any("2 tasks have GPU 2" in line for line in judge(twins, wanted, twins))
    assert judge(twins, Wanted(bound=True, distinct=False), twins) == []
    more = [task | {"CUDA_VISIBLE_DEVICES": "1"} for task in right]
    assert any("sees [3], Slurm leaves it [2, 3]" in line for line in judge(more, wanted, twins))
