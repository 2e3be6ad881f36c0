#!/usr/bin/env python3
"""horovod.run(): Horovod starts its own processes from a Python program."""

# SPDX-License-Identifier: Apache-2.0

import sys

import horovod


def main():
    sys.argv = ["horovod_train.py", "train"]
    import horovod_train

    horovod_train.main()


if __name__ == "__main__":
    horovod.run(main, np=int(sys.argv[1]), use_gloo=True)
