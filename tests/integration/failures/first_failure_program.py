"""A rank in the steps of test_first_failure.py: its arguments say what it does, and when."""

import os
import signal
import sys
import time

RANK = os.environ["SLURM_PROCID"]


def on_term(answer):
    """exit: like programs that save and end; ignore: like programs that hang."""
    if answer == "exit":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda *_: sys.exit(1))
    if answer == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def wait_for_all():
    """On a busy machine some ranks start late, but all must fail at one moment."""
    folder = f"started.{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{RANK}", "w").close()
    while len(os.listdir(folder)) < int(os.environ["SLURM_NTASKS"]):
        time.sleep(0.01)


def main(failing, after, end, others, term="default"):
    """Ranks in `failing` ("3", "all", "none") end by `end` ("exit 3", "kill 9") after `after` seconds, the others after `others`."""
    on_term(term)
    if failing == "all":
        wait_for_all()
    if failing == "all" or RANK in failing.split(","):
        time.sleep(float(after))
        how, number = end.split()
        if how == "kill":
            os.kill(os.getpid(), int(number))
        sys.exit(int(number))
    time.sleep(float(others))


main(*sys.argv[1:])
