"""A rank whose children try to exchange: one forked between two calls, one during a call. A third runs ls on its descriptors."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

ctypes.CDLL(sys.argv[1])  # which slurm_bootstrap then uses

from slurm_bootstrap import BootstrapError, Job  # noqa: E402


def show(who, job):
    try:
        job.barrier()
        said = "success"
    except BootstrapError as error:
        said = str(error)
    os.write(1, f"{who}: {said}\n".encode())


def show_in_child(who, job):
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        show(who, job)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        os.write(1, f"{who}: killed by signal {os.WTERMSIG(status)}\n".encode())


def main():
    job = Job()
    show("rank before", job)
    if job.rank == 0:
        show_in_child("child between", job)
        call = threading.Thread(target=show, args=("rank meanwhile", job))
        call.start()
        time.sleep(0.3)
        show_in_child("child in the midst", job)
        subprocess.run(["/bin/ls", "-l", "/proc/self/fd"], close_fds=False, check=True)
        call.join()
    else:
        time.sleep(1)  # so that rank 0 waits in its call
        show("rank meanwhile", job)
    show("rank after", job)


main()
