// For LD_PRELOAD: makes a process claim the user id FAKE_UID. A client that sends its own user id to a server can
// do this.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/types.h>

static unsigned int claimed(void) {
  const char* const uid = getenv("FAKE_UID");
  return uid == NULL ? 0 : (unsigned int)strtoul(uid, NULL, 10);
}

#define SHOWN __attribute__((visibility("default")))

SHOWN uid_t geteuid(void);
SHOWN uid_t getuid(void);
SHOWN gid_t getegid(void);
SHOWN gid_t getgid(void);

uid_t geteuid(void) { return claimed(); }
uid_t getuid(void) { return claimed(); }
gid_t getegid(void) { return claimed(); }
gid_t getgid(void) { return claimed(); }
