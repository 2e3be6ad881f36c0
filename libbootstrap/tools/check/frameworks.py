"""Prints which frameworks this Python finds, from the names of installed packages. It imports none of them.

Four lines: the Python, the frameworks, and the version and the library of the NCCL among its packages.
"""
import os
import re
import sys

NAMES = {"torch", "tensorflow", "jax", "horovod", "deepspeed", "lightning", "accelerate", "mpi4py", "chainer", "ray"}
ALIASES = {"pytorch-lightning": "lightning", "tensorflow-cpu": "tensorflow", "tf-nightly": "tensorflow"}

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
            found[name] = match[2]
frameworks = ", ".join(" ".join(one) for one in found.items())
print(f"{sys.version.split()[0]} ({sys.executable})", frameworks, *nccl, sep="\n")
