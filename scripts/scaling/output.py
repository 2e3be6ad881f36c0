"""What the training printed, read and judged: rows of steps, what each rank is, and whether the result can be right."""

# SPDX-License-Identifier: Apache-2.0

import math
import re

LABEL = re.compile(r"^\s*(\d+): ?")  # that `srun --label` puts before each line
TIMES = ("forward", "backward", "communication", "update")
ROW_FIELDS = ("rank", "step", "samples", *TIMES, "busy", "loss")
BATCHES = 4  # of a rank, in turn: models.py has the same
TOLERANCE = 1e-5  # between the parameters of ranks, relative to the largest

# Lines that Slurm and the launcher add to the end of every step that fails: they say that it ended, and not why.
NOISE = re.compile(r"^(srun: (error: .*(: tasks? |Job step|Timed out|Unable to)|launch/slurm|Job step|job \d+|Force Term|"
                   r"interrupt|sending|Terminating|error: \*\*\*)|slurmstepd.*(CANCELLED|\*\*\* STEP|mpi/pmix)|\s*$|-{5}|"
                   r"Traceback|  )|^\s*$")
FIRST = re.compile(r"task (\d+) \([^)]*\) (?:failed )?first: .*")


class Output:
    """The lines of a step, as they came."""

    def __init__(self):
        self.rows = {}  # model -> list of rows
        self.ends = {}  # model -> rank -> fields
        self.ranks = {}  # rank -> fields
        self.begun = []
        self.errors = []

    def take(self, line):
        """A line of standard output; True when it is a sign of life of the training."""
        text = LABEL.sub("", line.rstrip("\n"), count=1)
        if not text.startswith("@"):
            self.errors.append(line.rstrip("\n"))
            return False
        kind, _, rest = text[1:].partition(" ")
        fields = dict(word.partition("=")[::2] for word in rest.split())
        if kind == "step":
            self.rows.setdefault(fields.pop("model"), []).append(fields)
        elif kind == "end":
            self.ends.setdefault(fields.pop("model"), {})[int(fields.pop("rank"))] = fields
        elif kind == "begin":
            self.begun.append(fields["model"])
        elif kind == "rank":
            self.ranks[int(fields.pop("rank"))] = {**fields, "cores": ""}
        elif kind == "cores":
            known = self.ranks[int(fields["rank"])]
            known["cores"] += fields["part"]
        return True

    def finished(self, model, ranks):
        """Whether all ranks said that they were done with it."""
        return len(self.ends.get(model, {})) == ranks

    def reason(self):
        """Why a step failed, in one sentence: what the rank said last that failed first, as the plugin tells it."""
        first = next((found for line in reversed(self.errors) if (found := FIRST.search(line))), None)
        said = [line for line in self.errors if not NOISE.match(LABEL.sub("", line, count=1)) and not FIRST.search(line)]
        if first:
            said = [line for line in said if (label := LABEL.match(line)) and int(label[1]) == int(first[1])]
        last = LABEL.sub("", said[-1], count=1).strip() if said else ""
        return ": ".join(filter(None, (first[0] if first else "", last)))[:500]


def judge(output, model, ranks, steps, warm_up):
    """Why the result of a finished training cannot be right, or ''."""
    rows = output.rows.get(model, [])
    wanted = {(rank, step) for rank in range(ranks) for step in range(-warm_up, steps)}
    came = [(int(row["rank"]), int(row["step"])) for row in rows]
    if len(came) != len(wanted) or set(came) != wanted:
        return f"{len(set(came) & wanted)} of {len(wanted)} lines of steps came from the ranks"
    ends = output.ends[model]
    digests = {fields["digest"] for fields in ends.values()}
    difference = max_of(fields["difference"] for fields in ends.values())
    scale = max_of(fields["scale"] for fields in ends.values())
    if not math.isfinite(difference) or not math.isfinite(scale):
        return "the parameters are no finite numbers in the end"
    if difference > TOLERANCE * scale:
        return f"the ranks do not hold the same parameters in the end: they differ by {difference:.3g}"
    if len(digests) > 1 and difference == 0:
        return "the ranks say that their parameters are the same, and the checksums of these differ"
    before, after = losses(rows, steps, warm_up)
    if not after < before:
        return f"the loss did not fall: {before:.4g} in the first {BATCHES} steps, {after:.4g} in the last"
    return ""


def max_of(texts):
    """The greatest number; nan when one of them is."""
    values = [float(text) for text in texts]
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def losses(rows, steps, warm_up):
    """Mean over all ranks, in the first round through the batches and in the last whole one, on the same batches."""
    first = [float(row["loss"]) for row in rows if int(row["step"]) < BATCHES - warm_up]
    last = [float(row["loss"]) for row in rows if int(row["step"]) >= steps - BATCHES]
    return sum(first) / len(first), sum(last) / len(last)


def parameters_are(output, model):
    """How alike the ranks' parameters were found."""
    ends = output.ends[model]
    return "identical" if len({fields["digest"] for fields in ends.values()}) == 1 else "equal up to rounding"
