/*
 * Linked with the library, so that its constructor always runs; prints RANK from the environment.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "bootstrap/bootstrap.h"

int main(void) {
  const char* const rank = getenv("RANK");
  (void)printf("%s %s\n", bootstrap_version() > 0 ? "linked" : "-", rank != NULL ? rank : "none");
  return 0;
}
