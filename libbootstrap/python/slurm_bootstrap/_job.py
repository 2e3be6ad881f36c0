"""The C library through ctypes: the rank of this task in its step, and exchanges between the ranks."""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import functools
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from typing import Literal

# `slurm-bootstrap run --horovod` runs this file with any Python from 3.6 on: so newer types are in quotes.

_OK, _TIMEOUT = 0, 8  # bootstrap_status_t
_GROUPS = {"world": 0, "node": 1, "cross": 2}  # bootstrap_group_t
_NUMBERS = ("rank", "size", "local_rank", "local_size", "node_rank", "node_count", "cross_rank", "cross_size", "master_port")
_ID_BYTES = 128
_MAX_MILLISECONDS = 2**31 - 1
_FRAME = 1024  # of what rank 0 sends to all: an address, or a sentence


class BootstrapError(RuntimeError):
    """A call of the library failed. `status` is the number of its bootstrap_status_t."""

    status = 0


class BootstrapTimeoutError(BootstrapError, TimeoutError):
    """A rank did not make the call before the deadline. Over PMIx the message names the rank."""


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("timeout_ms", ctypes.c_int), ("reserved", ctypes.c_int)]


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    handle = ctypes.c_void_p
    library.bootstrap_open.argtypes = [ctypes.POINTER(handle), ctypes.POINTER(_Options)]
    library.bootstrap_close.argtypes = [handle]
    library.bootstrap_close.restype = None
    for name in (*_NUMBERS, "device", "barrier"):
        getattr(library, f"bootstrap_{name}").argtypes = [handle]
    library.bootstrap_master_addr.argtypes = [handle]
    library.bootstrap_master_addr.restype = ctypes.c_char_p
    library.bootstrap_exchange.argtypes = [handle, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
    library.bootstrap_broadcast.argtypes = [handle, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.bootstrap_nccl_unique_ids.argtypes = [handle, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    library.bootstrap_last_error.restype = ctypes.c_char_p
    return library


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    """The preloaded copy, if any: each of several copies in a process would count its own exchanges."""
    try:
        return _declare(ctypes.CDLL("libbootstrap.so.0", mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
    except (OSError, AttributeError):  # none, or an older one
        return _declare(ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libbootstrap.so.0")))


@functools.lru_cache(maxsize=None)
def _load_nccl_of_pip() -> None:
    """The libnccl of the package that PyTorch, CuPy and nccl4py use, unless the process has one or the user names one."""
    if "SLURM_BOOTSTRAP_NCCL" in os.environ:
        return
    try:
        ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return
    except OSError:
        pass
    for folder in sys.path:
        path = os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")
        if os.path.exists(path):
            ctypes.CDLL(path)
            return


def _check(status: int) -> None:
    if status == _OK:
        return
    sentence = (_library().bootstrap_last_error() or b"").decode(errors="replace")
    error = (BootstrapTimeoutError if status == _TIMEOUT else BootstrapError)(sentence[len("bootstrap: ") :] if sentence.startswith("bootstrap: ") else sentence)
    error.status = status
    raise error


class Job:
    """This task in its step. Creating a Job sends nothing and changes nothing.

    All ranks of the step make collective calls, in the same order. Each raises an error after `timeout` seconds
    (SLURM_BOOTSTRAP_TIMEOUT, or 60).
    """

    rank: int  # 0 to size - 1
    size: int  # ranks of the step
    local_rank: int  # place among the ranks of this node
    local_size: int  # ranks of this node
    node_rank: int  # number of the node
    node_count: int  # nodes of the step
    cross_rank: int  # place of this node among those that have this local rank
    cross_size: int  # how many nodes have this local rank
    device: Optional[int]  # the GPU of this task among those that it sees, as cudaSetDevice takes it; None: it has none
    master_addr: str  # host of rank 0
    master_port: int  # a port there

    def __init__(self, timeout: Optional[float] = None) -> None:
        library = _library()
        options = _Options(ctypes.sizeof(_Options), 0, 0)
        if timeout is not None:
            options.timeout_ms = min(max(int(timeout * 1000), 1), _MAX_MILLISECONDS)
        self._handle = ctypes.c_void_p()
        _check(library.bootstrap_open(ctypes.byref(self._handle), ctypes.byref(options)))
        for name in _NUMBERS:
            setattr(self, name, getattr(library, f"bootstrap_{name}")(self._handle))
        device = library.bootstrap_device(self._handle)
        self.device = device if device >= 0 else None
        self.master_addr = library.bootstrap_master_addr(self._handle).decode()

    def exchange(self, mine: bytes) -> "list[bytes]":
        """Sends a few bytes to all ranks; returns those of all ranks, in order of rank. All ranks pass the same number
        of bytes, at most 65,536. Collective."""
        everything = ctypes.create_string_buffer(max(len(mine) * self.size, 1))
        _check(_library().bootstrap_exchange(self._handle, mine, len(mine), everything))
        raw = everything.raw  # each reading of it is a copy
        return [raw[rank * len(mine) : (rank + 1) * len(mine)] for rank in range(self.size)]

    def barrier(self) -> None:
        """Returns when all ranks have called it. Collective."""
        _check(_library().bootstrap_barrier(self._handle))

    def nccl_unique_ids(self, group: 'Literal["world", "node", "cross"]' = "world", count: int = 1) -> "list[bytes]":
        """Unique ids of NCCL, 128 bytes each, the same on all ranks of the group: all ranks, those of this node, or
        those with this local rank. Collective over the step."""
        if group not in _GROUPS:
            raise ValueError(f"there is no group {group!r}; use 'world', 'node' or 'cross'")
        _load_nccl_of_pip()
        ids = ctypes.create_string_buffer(_ID_BYTES * max(count, 1))
        try:
            _check(_library().bootstrap_nccl_unique_ids(self._handle, _GROUPS[group], ids, count))
            raw = ids.raw
            return [raw[start : start + _ID_BYTES] for start in range(0, _ID_BYTES * count, _ID_BYTES)]
        finally:
            ctypes.memset(ids, 0, len(ids))

    def _from_rank_0(self, text: Optional[str]) -> str:
        """Rank 0's text, at most 1,022 bytes of it, on all ranks. Collective."""
        frame = ctypes.create_string_buffer((text or "").encode()[: _FRAME - 2], _FRAME)
        _check(_library().bootstrap_broadcast(self._handle, frame, _FRAME, 0))
        return frame.value.decode(errors="replace")

    def close(self) -> None:
        """Frees the library's memory, which only collective calls need. The attributes stay."""
        if self._handle:
            _library().bootstrap_close(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: "Optional[type[BaseException]]", error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
