"""Makes weak the names without a version that a shared object needs: a missing name is an error when it is called, and does not
end a program that never calls it (LD_BIND_NOW). Linkers do this for single files only. Takes an ELF file of 64 bits."""

# SPDX-License-Identifier: Apache-2.0

import struct
import sys

DYNAMIC_SYMBOLS, VERSIONS, GLOBAL, WEAK, NO_VERSION = 11, 0x6FFFFFFF, 1, 2, (0, 1)

with open(sys.argv[1], "r+b") as file:
    data = bytearray(file.read())
    start, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * number) for number in range(count)]
    symbols, versions = (next(section for section in sections if section[1] == kind) for kind in (DYNAMIC_SYMBOLS, VERSIONS))
    for number in range(1, symbols[5] // 24):
        at = symbols[4] + 24 * number
        is_needed = struct.unpack_from("<H", data, at + 6)[0] == 0
        version = struct.unpack_from("<H", data, versions[4] + 2 * number)[0]
        if is_needed and version in NO_VERSION and data[at + 4] >> 4 == GLOBAL:
            data[at + 4] = WEAK << 4 | data[at + 4] & 15
    file.seek(0)
    file.write(data)
