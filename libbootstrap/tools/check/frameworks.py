"""Prints which frameworks this Python finds, from the names of installed packages. It imports none of them.

Four lines: the Python, the frameworks, and the version and the library of the NCCL among its packages.
"""
import glob
import mmap
import os
import re
import sys

NAMES = {"torch", "tensorflow", "jax", "horovod", "deepspeed", "lightning", "accelerate", "mpi4py", "chainer", "ray"}
ALIASES = {"pytorch-lightning": "lightning", "tensorflow-cpu": "tensorflow", "tf-nightly": "tensorflow"}
# Classes in Horovod's extension modules, as compilers write their names.
CONTROLLERS = {"Gloo": b"14GlooController", "MPI": b"13MPIController"}
OPERATIONS = {"NCCL": b"13NCCLAllreduce", "Gloo": b"13GlooAllreduce", "MPI": b"12MPIAllreduce", "oneCCL": b"12CCLAllreduce"}


def built_parts(folder):
    for framework in "torch", "tensorflow", "mxnet":
        for path in glob.glob(os.path.join(glob.escape(folder), "horovod", framework, "mpi_lib*.so")):
            try:
                with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    names = [" ".join(name for name, word in words.items() if content.find(word) >= 0) or "none"
                             for words in (CONTROLLERS, OPERATIONS)]
            except (OSError, ValueError):  # it cannot be read, or is empty
                continue
            return f" (for {framework}; controllers: {names[0]}; operations: {names[1]})"
    return ""


found = {}
nccl = ("", "")
for folder in filter(os.path.isdir, sys.path):
    try:
        entries = sorted(os.listdir(folder))
    except OSError:  # Python itself passes over it, too
        continue
    for entry in entries:
        match = re.fullmatch(r"(.+?)-([^-]+)(-py[\d.]+)?\.(dist|egg)-info", entry)
        if not match:
            continue
        name = match[1].lower().replace("_", "-")
        name = ALIASES.get(name, name)
        library = os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")
        if re.fullmatch(r"nvidia-nccl-cu\d+", name) and not nccl[0] and os.path.exists(library):
            nccl = (match[2], library)
        elif name in NAMES and name not in found:
            found[name] = match[2] + (built_parts(folder) if name == "horovod" else "")
frameworks = ", ".join(" ".join(one) for one in found.items())
print(f"{sys.version.split()[0]} ({sys.executable})", frameworks, *nccl, sep="\n")
