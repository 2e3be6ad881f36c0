"""scripts/demo shows what it promises, and the commands that it prints at the end work."""

import os
import re
import subprocess

from harness import REPOSITORY, run_here, succeed_here

MINE = """import os
import torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()} as uid {os.getuid()}")
"""


def test_a_kept_cluster_is_ready_for_the_program_of_the_user(cluster_factory, tmp_path):
    cluster = cluster_factory("demo")
    # It must not build: other tests use the build at this moment.
    (tmp_path / "cmake").symlink_to("/bin/true")
    (tmp_path / "my.py").write_text(MINE)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [REPOSITORY / "scripts" / "demo", "--keep", "--name", cluster.name]
    done = succeed_here(line, env=path, stdin=subprocess.DEVNULL, timeout=300)
    for srun in "srun", "srun -N2":
        assert f"$ {srun} --ntasks-per-node 2 --gres gpu:2 ./train\n" in done.stdout
    typed = re.findall(r"^ {6}(\S.*)$", done.stdout.partition("What next?")[2], re.MULTILINE)
    install, run, _, check, down = (line.replace("scripts/cluster", f"{REPOSITORY}/scripts/cluster") for line in typed)

    def follow(line):
        return run_here(line, shell=True, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=60)

    assert follow(install).returncode == 0
    ran = follow(run)
    assert sorted(ran.stdout.splitlines()) == [f"rank {rank} of 4 as uid 10001" for rank in range(4)], ran.stderr
    assert "all 4 ranks answered" in follow(check).stdout
    assert follow(down).returncode == 0 and not cluster.state.exists()
