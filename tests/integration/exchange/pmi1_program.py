"""A program that uses PMI-1 itself, as Intel MPI and MPICH do, and the library: pmi1_program.py LIBRARY WORD...

It follows its words in order: "own" is a round of PMI-1, "ours" a round of the library, "late" a pause of rank 1 longer than a
deadline, "wait" the same of the other ranks; "subreaper" makes the program one, like process 1 of a container. At the end it
prints what the library has left in the process.
"""

import ctypes
import os
import signal
import sys
import time

ctypes.CDLL(sys.argv[1])  # which slurm_bootstrap then uses

from slurm_bootstrap import BootstrapError, Job  # noqa: E402

TIMEOUT, ALARM = 2, 1_000_000  # seconds
PR_SET_CHILD_SUBREAPER = 36
OF_LIBC = 0b11 << 31  # signals 32 and 33, which glibc handles once there is a thread


def look():
    """The numbers of threads, files and loaded objects of this process, and the signals that it catches or ignores."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        objects = {line.split()[-1] for line in maps if ".so" in line}
    with open("/proc/self/status", encoding="utf-8") as status:
        handlers = [int(line.split()[1], 16) & ~OF_LIBC for line in status if line.startswith(("SigCgt", "SigIgn"))]
    counts = {"threads": len(os.listdir("/proc/self/task")), "files": len(os.listdir("/proc/self/fd")), "objects": len(objects)}
    return counts, handlers


def has_child():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def own_round(job, number):
    """Each rank puts a key, all enter a barrier, and each rank compares all values."""
    pmi = ctypes.CDLL("libpmi.so.0", ctypes.RTLD_GLOBAL)
    spawned, space, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.create_string_buffer(1024)
    failed = [pmi.PMI_Init(ctypes.byref(spawned)), pmi.PMI_KVS_Get_my_name(space, 256),
              pmi.PMI_KVS_Put(space, b"own.%d.%d" % (number, job.rank), b"%d/%d" % (number, job.rank)),
              pmi.PMI_KVS_Commit(space), pmi.PMI_Barrier()]
    for rank in range(job.size):
        failed += [pmi.PMI_KVS_Get(space, b"own.%d.%d" % (number, rank), value, 1024), value.value != b"%d/%d" % (number, rank)]
    return "the values are wrong" if any([*failed, pmi.PMI_Finalize()]) else ""


def our_round(job, number):
    try:
        values = job.exchange(b"%8d" % (1000 * number + job.rank))
    except BootstrapError as error:
        return str(error)
    return "" if list(map(int, values)) == [1000 * number + rank for rank in range(job.size)] else "the values are wrong"


def say(text):
    os.write(1, f"{text}\n".encode())


def main(words):
    job, signals, failed = Job(timeout=TIMEOUT), [], False
    signal.signal(signal.SIGCHLD, lambda *_: signals.append(True))
    signal.alarm(ALARM)
    before, handlers = look()
    for number, word in enumerate(words):
        if word == "subreaper":
            assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        elif word in ("late", "wait"):
            time.sleep((TIMEOUT + 1) * ((word == "late") == (job.rank == 1)))
        else:
            began = time.monotonic()
            trouble = (own_round if word == "own" else our_round)(job, number)
            failed = failed or bool(trouble)
            took = f"{1000 * (time.monotonic() - began):.0f} ms"
            say(f"rank {job.rank} {word} failed after {took}: {trouble}" if trouble else f"rank {job.rank} {word} right after {took}")
    job.close()
    after, handlers_now = look()
    more = ", ".join(f"{name} {after[name] - before[name]}" for name in before)
    say(f"rank {job.rank} left: {more}, handlers {int(handlers_now != handlers)}, children {int(has_child())}, signals {len(signals)}, "
        f"alarm {int(signal.alarm(0) > ALARM / 2)}")
    return failed


sys.exit(main(sys.argv[2:]))
