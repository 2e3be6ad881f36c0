"""The line of srun that `supervise` repeats: which it refuses, and what it adds."""
# SPDX-License-Identifier: Apache-2.0
import os

from step_choice import Refusal

# Options with which a second start would not be that of the first, or would not be right, and what to do instead.
REFUSED = (
    ("", "--pty", "a terminal is of one start; leave --pty out"),
    ("", ":", "the parts of a heterogeneous step are not started again; use one component"),
    ("", "--het-group", "the parts of a heterogeneous job are not started again; use a job of one component"),
    ("", "--async", "srun does not wait for the step; leave --async out"),
    ("-r", "--relative", "the numbers of nodes change when one is lost; leave --relative out"),
    ("-w", "--nodelist", "a lost node could not be replaced; leave the list out: the nodes of the first start are kept"),
    ("-F", "--nodefile", "a lost node could not be replaced; leave the file out: the nodes of the first start are kept"),
    ("", "SLURM_HOSTFILE", "a lost node could not be replaced; unset it"))


class SrunLine:
    """`own_count`: so many words are srun's name and its options."""

    def __init__(self, words, own_count):
        self.own, self.program = words[:own_count], words[own_count:]

    def values(self, short, name):
        """What the line has behind an option, in each of the ways of getopt(3)."""
        found = []
        for word, after in zip(self.own[1:], self.own[2:] + [""]):
            if word == name or short and word == short:
                found.append(after)
            elif word.startswith(name + "="):
                found.append(word.partition("=")[2])
            elif short and word.startswith(short):
                found.append(word[2:])
        return found

    def refuse(self):
        """Raises why this line is not supervised, before anything is started."""
        if not self.own or os.path.basename(self.own[0]) != "srun":
            raise Refusal("supervise starts srun; put the line of srun behind --: slurm-bootstrap supervise -- srun ...", 2)
        job = os.environ.get("SLURM_JOB_ID", "")
        if not job or any(value != job for value in self.values("", "--jobid")):
            raise Refusal("supervise restarts a step of its own job; start it in the script of sbatch, or in the shell of salloc", 2)
        for short, name, why in REFUSED:
            if self.values(short, name) or os.environ.get(name):
                raise Refusal(f"cannot repeat a line of srun with {name}: {why}", 2)
        if not self.values("-N", "--nodes"):
            raise Refusal("srun would take all nodes of the job, and none would be spare; add -N with the nodes of the training", 2)
        if not self.values("-n", "--ntasks") and not self.values("", "--ntasks-per-node"):
            raise Refusal("srun would take the number of tasks from the job; add -n or --ntasks-per-node", 2)
        if any("/" in value for value in self.values("-x", "--exclude")):
            raise Refusal("cannot add a lost node to the file of srun's --exclude; name the nodes there", 2)

    def excluded(self):
        """The nodes that the user leaves out, as lists of Slurm's."""
        return self.values("-x", "--exclude")[-1:]

    def environment_option(self):
        """BOOTSTRAP_RESTART_COUNT reaches the tasks, too, where the line does not export all variables."""
        said = (self.values("", "--export") or [os.environ.get("SLURM_EXPORT_ENV", "ALL")])[-1]
        if "ALL" in said.split(","):
            return []
        names = [] if said in ("NONE", "NIL") else [said]
        return ["--export=" + ",".join([*names, "BOOTSTRAP_RESTART_COUNT"])]

    def first(self):
        return self.own + self.environment_option() + self.program

    def again(self, nodes, lost, overlaps):
        """The line for these nodes. srun takes the last one of an option that is given twice."""
        added = ["--open-mode=append", "--nodelist=" + ",".join(nodes)]
        if lost:
            added.append("--exclude=" + ",".join([*self.excluded(), *lost]))
        return self.own + self.environment_option() + added + (["--overlap"] if overlaps else []) + self.program
