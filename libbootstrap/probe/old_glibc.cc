// What glibc has in libc itself since 2.34: for files that are built to run with older ones, too.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
