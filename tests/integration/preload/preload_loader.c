/*
 * Opens libraries as Python opens its modules, and lets each make a communicator: preload_loader [deep] LIBRARY... --
 * ARGUMENTS of preload_nccl. `deep` opens them with RTLD_DEEPBIND, where no preloaded library is asked.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char** arguments) {
  int flags = RTLD_NOW | RTLD_LOCAL;
  int first = 1;
  int last = 1;
  if (count > 1 && strcmp(arguments[1], "deep") == 0) {
    flags |= RTLD_DEEPBIND;
    ++first;
  }
  while (last < count && strcmp(arguments[last], "--") != 0) ++last;
  for (int i = first; i < last; ++i) {
    void* const library = dlopen(arguments[i], flags);
    int (*run)(int, char**) = NULL;
    if (library != NULL) *(void**)&run = dlsym(library, "preload_nccl");
    if (run == NULL) {
      fprintf(stderr, "preload_loader: %s\n", dlerror());
      return 2;
    }
    const int code = run(count - last, arguments + last);
    if (code != 0) return code;
  }
  return 0;
}
