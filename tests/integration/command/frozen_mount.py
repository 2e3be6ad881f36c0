#!/usr/bin/env python3
"""A FUSE file system that answers its first request and then no other: frozen_mount.py FOLDER, as root.

Prints `ready` when it is mounted. Its end releases all that wait for it.
"""

import ctypes
import os
import stat
import struct
import sys
import time

INIT, IN_HEADER = 26, struct.Struct("<IIQQIIII")
folder = sys.argv[1]
if not os.path.exists("/dev/fuse"):
    os.mknod("/dev/fuse", stat.S_IFCHR | 0o600, os.makedev(10, 229))
fuse = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={fuse},rootmode=40755,user_id=0,group_id=0,allow_other"
if libc.mount(b"frozen", folder.encode(), b"fuse", 6, options.encode()) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
request = os.read(fuse, 1 << 16)
_, opcode, unique, *_ = IN_HEADER.unpack_from(request)
assert opcode == INIT, opcode
# fuse_init_out of the kernel's include/uapi/linux/fuse.h, protocol 7.31.
answer = struct.pack("<IIIIHHIIHHI7I", 7, 31, 4096, 0, 12, 9, 4096, 1, 0, 0, 0, *[0] * 7)
os.write(fuse, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
print("ready", flush=True)
time.sleep(600)
