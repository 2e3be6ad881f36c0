#!/usr/bin/env python3
"""A FUSE file system on which every access waits for ever: frozen_mount.py FOLDER [later], as root.

With `later` its root folder can be entered until SIGUSR1. Prints `ready` when it is mounted. When it ends, all waiting
accesses fail.
"""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import os
import signal
import stat
import struct
import sys
import time

# Opcodes, fuse_in_header, fuse_init_out and fuse_attr_out of the kernel's include/uapi/linux/fuse.h, protocol 7.31.
GETATTR, INIT, ACCESS = 3, 26, 34
HEADER = struct.Struct("<IIQQIIII")
INIT_ANSWER = struct.pack("<IIIIHHIIHHI7I", 7, 31, 4096, 0, 12, 9, 4096, 1, 0, 0, 0, *[0] * 7)
ROOT = struct.pack("<QII" "QQQQQQ" "IIIIIIIIII", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40777, 2, 0, 0, 0, 4096, 0)


def mount(folder):
    if not os.path.exists("/dev/fuse"):
        os.mknod("/dev/fuse", stat.S_IFCHR | 0o600, os.makedev(10, 229))
    fuse = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode=40777,user_id=0,group_id=0,allow_other"
    if libc.mount(b"frozen", folder.encode(), b"fuse", 6, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    return fuse


def serve(fuse, answers):
    _, opcode, unique, *_ = HEADER.unpack_from(os.read(fuse, 1 << 17))
    if opcode in answers:
        os.write(fuse, struct.pack("<IiQ", 16 + len(answers[opcode]), 0, unique) + answers[opcode])


def main():
    frozen = []
    signal.signal(signal.SIGUSR1, lambda *_: frozen.append(True))
    fuse = mount(sys.argv[1])
    serve(fuse, {INIT: INIT_ANSWER})
    print("ready", flush=True)
    while sys.argv[2:] and not frozen:
        serve(fuse, {GETATTR: ROOT, ACCESS: b""})
    while True:
        time.sleep(600)


main()
