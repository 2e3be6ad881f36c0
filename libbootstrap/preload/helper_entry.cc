// Where this library starts when its loader runs it as a program: ask_helper() does so.
// SPDX-License-Identifier: Apache-2.0
#include "comm/helper_main.h"

// The kernel's stack is aligned as no function of x86-64 expects it: there is no return address on it.
#if defined(__x86_64__)
#define BOOTSTRAP_ENTRY [[gnu::force_align_arg_pointer, noreturn, gnu::used]]
#else
#define BOOTSTRAP_ENTRY [[noreturn, gnu::used]]
#endif

// Neither our constructors nor argc and argv are needed, so that the C library's start code is not either; the loader
// has initialised the C library itself. -Wl,-e,NAME puts it into the header of the file.
extern "C" {
BOOTSTRAP_ENTRY void bootstrap_entry();
void bootstrap_entry() { bootstrap::serve_as_helper(); }
}
