#!/usr/bin/env python3
"""Compares parse_host_list with the real `scontrol show hostnames` on generated host lists.

Prints one line: lists, hosts, differences, documented differences, seed, seconds. Exits with 0 if both accept the same
lists with the same names in the same order, except for the differences in the comment on parse_host_list, each of which
must occur at least once; with 2 if not; with 77 (skipped) if there is no scontrol;
with 1 if the comparison itself failed.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

PROMPT = "scontrol: show hostnames "
BATCH = 1000
# Seconds for a batch, which takes one second, and at least for the last list of a batch: Slurm misreads some names as
# ranges of millions of hosts.
PATIENCE, LEAST_PATIENCE = 100, 5
TOO_SLOW = "too slow"
MEMORY_LIMIT = 2 << 30  # Slurm 22.05 allocates without end on a range that ends at 2^64 - 1


class Generator:
    """Host lists of every form in the grammar, small and large, and broken ones."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.budget = 0

    def number(self):
        kind = self.random.random()
        if kind < 0.7:
            return self.random.randint(0, 120)
        if kind < 0.97:
            return self.random.choice([9, 99, 999, 9999, 65535, 10**9, 2**32 - 1, 2**32]) + self.random.randint(-2, 2)
        return self.random.randint(2**62, 2**63)

    def range(self):
        first = self.number()
        text = str(first).zfill(self.random.choice([0, 0, 0, 1, 2, 3, 4, 5, 12, 21]))
        if self.random.random() < 0.5:
            return text
        steps = self.random.choice([0, 1, 1, 2, 3, 5, 12, 90])
        if self.random.random() < 0.0005:
            steps = self.random.choice([998, 9999, 65534, 65535])
        steps = max(min(steps, self.budget - 1), 0)
        self.budget //= steps + 1
        return text + "-" + str(first + steps).zfill(self.random.choice([0, 0, 0, 1, 3, 5]))

    def bracket(self):
        count = self.random.choice([1, 1, 1, 2, 2, 3, 5])
        ranges = [self.range() for _ in range(count)]
        self.budget //= count
        return "[" + ",".join(ranges) + "]"

    def literal(self):
        pieces = ["n", "node", "gpu", "a", "rack", "x", "-", "_", ".", "0", "1", "9", "09", "100", "Z", "-ib", "e1"]
        return "".join(self.random.choice(pieces) for _ in range(self.random.choice([1, 1, 1, 2, 2, 3])))

    def item(self):
        text = self.literal().lstrip("-") or "n"
        if self.random.random() < 0.4:
            if self.random.random() < 0.4:  # a run of neighbours, which Slurm folds into a range
                first, width = self.random.randint(0, 120), self.random.choice([0, 0, 2, 3])
                return ",".join(text + str(first + i).zfill(width) for i in range(self.random.randint(2, 4)))
            return text
        if self.random.random() < 0.05:
            text = ""
        for _ in range(self.random.choice([1, 1, 1, 1, 2, 2, 3, 4])):
            text += self.bracket()
            if self.random.random() < 0.3:
                text += self.literal()
        if self.random.random() < 0.9:  # most end in a bracket, the others have a suffix
            text = text[:text.rindex("]") + 1]
        return text

    def valid(self):
        self.budget = self.random.choice([20, 60, 60, 200, 200, 65536])
        separators = [","] * 30 + [",,", ",,,"]
        text = ""
        for _ in range(self.random.choice([1, 1, 1, 2, 2, 3, 6])):
            text += self.item() + self.random.choice(separators)
        return text if self.random.random() < 0.02 else text.strip(",")

    def broken(self):
        text = list(self.valid()[:200])
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            at = self.random.randrange(len(text) + 1)
            kind = self.random.random()
            if kind < 0.35 and at < len(text):
                del text[at]
            elif kind < 0.8:
                text.insert(at, self.random.choice("[]],,--0199nx.(+/@="))
            elif at < len(text):
                text[at] = self.random.choice("[]-,0n")
        return "".join(text)

    def lists(self, count):
        while count > 0:
            text = self.broken() if self.random.random() < 0.2 else self.valid()
            # More hosts than this only take time, and such a number in brackets can crash scontrol (see "crash").
            if text and approximate_hosts(text) <= 200000 and not ("[" in text and has_huge_number(text)):
                count -= 1
                yield text


def split_items(text):
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


def approximate_hosts(text):
    total = 0
    for item in split_items(text):
        hosts = 1
        for bracket in re.findall(r"\[([^\]]*)\]", item):
            ends = [re.findall(r"\d+", part) for part in bracket.split(",")]
            hosts *= sum(max(int(end[-1]) - int(end[0]) + 1, 1) if end else 1 for end in ends)
        total += hosts
    return total


def has_huge_number(text):
    return any(int(digits) >= 2**64 - 1 for digits in re.findall(r"\d+", text))


def brackets(text):
    return [part for inside in re.findall(r"\[([^\[\]]*)\]", text) for part in inside.split(",")]


def is_unbalanced(text):
    depth = 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            return True
    return depth != 0


# The differences listed in the comment on parse_host_list: what we do differently from Slurm, and in which texts.
ACCEPT, REFUSE = "we accept, Slurm refuses", "we refuse, Slurm answers"
KEEP, MORE = "we keep the name, Slurm changes it", "we answer, Slurm leaves hosts out"
DOCUMENTED = {
    "suffix": ([ACCEPT], lambda text: re.search(r"\][\w.-]+(,|\s|$)", text, re.ASCII)),
    "unclosed": ([REFUSE], is_unbalanced),
    "open-range": ([REFUSE], lambda text: any(re.fullmatch(r".*\d-", part) for part in brackets(text))),
    "junk": ([REFUSE], lambda text: any(re.fullmatch(r"[ \t]*\+?\d+[^-]*-?[ \t]*\+?\d*", part)
                                        and not re.fullmatch(r"[\d-]+", part) for part in brackets(text))),
    "overflow": ([REFUSE], lambda text: has_huge_number(" ".join(brackets(text)))),
    "crash": ([ACCEPT], lambda text: re.search(r"\d-18446744073709551615[\],]", text)),
    "digits": ([KEEP], lambda text: re.search(r"\d{20}(,|$)", text)),
    "brackets": ([REFUSE], lambda text: any(item.count("[") > 8 for item in split_items(text))),
    "dropped": ([REFUSE, MORE], lambda text: any(item.count("[") > 2 for item in split_items(text))),
    "character": ([REFUSE], lambda text: re.search(r"[^\w.,\[\] \t-]", text, re.ASCII)),
    "long-name": ([REFUSE], lambda text: re.search(r"[^,]{256}", text)),
    "too-many": ([REFUSE], lambda text: approximate_hosts(text) > 65536),
}

# At least one text for each difference, and texts that the interactive scontrol does not accept (spaces, quotes).
SPECIMENS = [
    "n[1-2]-ib", "rack[1-2]n[3-4]x", "n[1-65537]", "n[1", "a[1-2],b[", "n1]", "n[1-]", "n[1, 2]", "n[ 1]", "n[1 -2]",
    "n[+1]", "n[1x-3]", "n[18446744073709551616]", "n[18446744073709551614-18446744073709551615]", "n123456789012345678901",
    "a[x]b[1]c[1],d", "n" + "[1]" * 9, "z[1-65536,70000]n[1]c[1]", "(null)", "a\nb", "n\u00e9", '"a"', "a" * 300,
    ",".join(f"n{i}[1-65536]" for i in range(17)),
    "", ",", " ", "\t", "a, b", " a", "a ", "a b", "a\tb", "n [1-2]", "n[1-2] m", "n[1 2]", "n[1-2 ]", "n[0-65535]",
    "n[1-65536,70000-80000]", "gpu[65533-131067,50-50,27][10]", "n[10-65545,5]x[1]", "a[1-300]n[1-300]", "n[18446744073709551615]",
]


def command(*arguments):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return dict(args=["scontrol", *arguments], preexec_fn=limit, capture_output=True)


def ask_scontrol_once(text):
    """Slurm's answer to one list as an argument: the names, or None if it refuses (or crashes)."""
    answer = subprocess.run(**command("show", "hostnames", text))
    if answer.returncode < 0 or b"Invalid hostlist" in answer.stderr:
        return None
    return answer.stdout.decode()


def ask_scontrol(texts):
    """Slurm's answers to many lists, from the interactive scontrol, which echoes each command before its answer."""
    try:
        answer = subprocess.run(**command(), input="".join(f"show hostnames {text}\n" for text in texts).encode(),
                                timeout=max(LEAST_PATIENCE, PATIENCE * len(texts) / BATCH))  # fmt: skip
    except subprocess.TimeoutExpired:
        half = len(texts) // 2
        return ask_scontrol(texts[:half]) + ask_scontrol(texts[half:]) if half else [TOO_SLOW]
    if answer.returncode != 0:
        sys.exit(f"scontrol ended with {answer.returncode}: {answer.stderr[-300:].decode()}")
    refused = set(re.findall(r"^Invalid hostlist: (.*)$", answer.stderr.decode(), re.MULTILINE))
    echoed = answer.stdout.decode().split(PROMPT)[1:]
    if len(echoed) != len(texts):
        sys.exit(f"scontrol was asked {len(texts)} times and answered {len(echoed)} times")
    echoed[-1] = echoed[-1].rsplit("scontrol: \n", 1)[0]
    names = []
    for text, part in zip(texts, echoed):
        if not part.startswith(text + "\n"):
            sys.exit(f"scontrol read {text!r} as {part.split(chr(10))[0]!r}")
        names.append(None if text in refused else part[len(text) + 1:])
    return names


def ask_driver(driver, texts):
    answer = subprocess.run([driver], input="".join(text + "\0" for text in texts), encoding="utf-8",
                            capture_output=True, check=True)
    parts = answer.stdout.split("\0")[1:]
    if len(parts) != len(texts):
        sys.exit(f"the driver was asked {len(texts)} times and answered {len(parts)} times")
    return [None if part.startswith("!") else part[1:] for part in parts]


def explain(text, theirs, ours):
    """The name of the documented difference between two unequal answers, or None if it is not documented."""
    if theirs is None:
        kind = ACCEPT
    elif ours is None:
        kind = REFUSE
    elif "[" not in text and ours.split() == split_items(text):
        kind = KEEP
    elif set(theirs.split()) < set(ours.split()):
        kind = MORE
    else:
        return None
    for name, (kinds, applies) in DOCUMENTED.items():
        if kind in kinds and applies(text):
            return name
    return None


def ask_scontrol_without_suffixes(texts):
    """The right names of items with suffixes: Slurm expands each item without its suffix, and the suffix is added."""
    parts = [[re.fullmatch(r"(.*?\]|[^\[]*)([^\[\]]*)", item).groups() for item in split_items(text)] for text in texts]
    stems = sorted({stem for items in parts for stem, _ in items})
    names = dict(zip(stems, ask_scontrol(stems)))
    return ["".join(name + suffix + "\n" for stem, suffix in items for name in (names[stem] or "?").split())
            for items in parts]


class Comparison:
    """The result of all batches. Answers are large, so each batch is compared as soon as it is answered."""

    def __init__(self, driver, is_spoiled):
        self.driver, self.is_spoiled = driver, is_spoiled
        self.lists, self.hosts, self.refused, self.slow = 0, 0, 0, 0
        self.documented, self.differences = collections.Counter(), []

    def answers(self, texts, ask):
        """Asks Slurm and us about a batch (in a worker thread) and returns the answers that differ."""
        theirs = ask(texts)
        ours = ask_driver(self.driver, texts)
        if self.is_spoiled:
            ours[::10] = [names and f"0{names}" for names in ours[::10]]
        different = [answer for answer in zip(texts, theirs, ours) if answer[1] not in (answer[2], TOO_SLOW)]
        named = [(explain(*answer), *answer) for answer in different]
        suffixed = [answer for answer in named if answer[0] == "suffix"]
        expected = ask_scontrol_without_suffixes([text for _, text, _, _ in suffixed])
        wrong = [(None, text, names, ours) for (_, text, _, ours), names in zip(suffixed, expected) if names != ours]
        hosts = sum(names.count("\n") for names in theirs if names and names != TOO_SLOW)
        return (len(texts), hosts, theirs.count(None), theirs.count(TOO_SLOW)), named + wrong

    def add(self, counts, named):
        before = (self.lists, self.hosts, self.refused, self.slow)
        self.lists, self.hosts, self.refused, self.slow = map(sum, zip(counts, before))
        self.documented.update(name for name, *_ in named if name)
        self.differences += [answer for name, *answer in named if not name]

    def report(self):
        shorten = lambda names: "refused" if names is None else " ".join(names[:300].split())
        for text, theirs, ours in self.differences[:10]:
            print(f"{text[:300]!r}\n  Slurm: {shorten(theirs)}\n  ours:  {shorten(ours)}", file=sys.stderr)
        unseen = DOCUMENTED.keys() - self.documented.keys()
        if unseen:
            print(f"documented, but not seen any more: {', '.join(sorted(unseen))}", file=sys.stderr)
        return not self.differences and not unseen


def prepare_environment(folder):
    # scontrol reads a configuration before it parses anything, but asks no daemon for this command.
    os.environ["SLURM_CONF"] = os.path.join(folder, "slurm.conf")
    with open(os.environ["SLURM_CONF"], "w", encoding="utf-8") as conf:
        conf.write("ClusterName=differential\nSlurmctldHost=localhost\n")
    # Readline redraws an echoed line that is as wide as the terminal, so the terminal is wider than any line here.
    os.environ.update(TERM="dumb", COLUMNS="30000", INPUTRC="/dev/null")


def keep_figure(comparison, is_good, seed):
    """Keeps the figure F2 for the report of scripts/check --full."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))
    from test_report.figures import Figure, keep

    got = (f"{len(comparison.differences)} differences in {comparison.lists:,} lists with {comparison.hosts:,} hosts, "
           f"of which {comparison.refused:,} are refused by Slurm, and {comparison.slow} take it too long to be compared")
    is_full = comparison.lists - comparison.slow >= 999_000 and comparison.refused >= 100_000
    keep(Figure("F2", "", got, is_good, is_full, "a driver with spoiled answers is found out", seed,
                why="" if is_full else f"bounded to {comparison.lists:,} lists"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True, help="the compiled hostlist_driver")
    parser.add_argument("--lists", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="breaks", action="store_true", help="spoil every tenth of our answers (a control)")
    parser.add_argument("--keep-figure", action="store_true", help="for the report of scripts/check --full")
    arguments = parser.parse_args()
    if not shutil.which("scontrol"):
        print("skipped: scontrol (Slurm's client commands) is not installed")
        return 77

    started = time.monotonic()
    comparison = Comparison(arguments.driver, arguments.breaks)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        prepare_environment(folder)
        one_by_one = lambda texts: [ask_scontrol_once(text) for text in texts]
        jobs = [pool.submit(comparison.answers, SPECIMENS, one_by_one)]
        generated = list(Generator(arguments.seed).lists(arguments.lists))
        for begin in range(0, len(generated), BATCH):
            jobs.append(pool.submit(comparison.answers, generated[begin:begin + BATCH], ask_scontrol))
        for job in jobs:
            comparison.add(*job.result())
    is_good = comparison.report()
    if arguments.keep_figure:
        keep_figure(comparison, is_good, arguments.seed)
    print(f"lists {comparison.lists}, hosts {comparison.hosts}, differences {len(comparison.differences)}, "
          f"documented differences {comparison.documented.total()}, seed {arguments.seed}, "
          f"{time.monotonic() - started:.1f} seconds")
    return 0 if is_good else 2


if __name__ == "__main__":
    sys.exit(main())
