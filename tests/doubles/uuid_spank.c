// A SPANK plugin that makes the lists of GPUs that Slurm sets look as they do where Slurm knows the GPUs' UUIDs, for
// plugins listed after it in plugstack.conf. Its argument is the way: format=GPU-%d or format=MIG-%d, %d the number, or
// uuids=GPU-...,GPU-... with that of each GPU.
// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(uuid_double, 1)

enum { kListSize = 4096, kNameSize = 128 };

static const char* value_of(int count, char** arguments, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], name, strlen(name)) == 0) return arguments[i] + strlen(name);
  }
  return NULL;
}

// "GPU-%d" and 3: "GPU-3".
static bool name_by_format(const char* format, const char* number, char* name) {
  const char* const place = strstr(format, "%d");
  if (place == NULL) return false;
  const int length = snprintf(name, kNameSize, "%.*s%s%s", (int)(place - format), format, number, place + 2);
  return length > 0 && length < kNameSize;
}

// "GPU-a,GPU-b" and 1: "GPU-b".
static bool name_by_list(const char* list, const char* number, char* name) {
  for (long place = strtol(number, NULL, 10); place > 0; --place) {
    list = strchr(list, ',');
    if (list == NULL) return false;
    ++list;
  }
  const int length = snprintf(name, kNameSize, "%.*s", (int)strcspn(list, ","), list);
  return length > 0 && length < kNameSize;
}

static int rewrite(spank_t spank, int count, char** arguments) {
  const char* const format = value_of(count, arguments, "format=");
  const char* const uuids = value_of(count, arguments, "uuids=");
  char list[kListSize];
  if (!spank_remote(spank) || (format == NULL && uuids == NULL)) return 0;
  if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof list) != ESPANK_SUCCESS) return 0;
  if (!isdigit((unsigned char)list[0])) return 0;
  char fresh[kListSize] = "";
  size_t length = 0;
  char* rest = NULL;
  for (char* word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
    char name[kNameSize];
    if (!(format != NULL ? name_by_format(format, word, name) : name_by_list(uuids, word, name))) return 0;
    const int written = snprintf(fresh + length, sizeof fresh - length, "%s%s", length == 0 ? "" : ",", name);
    if (written < 0 || (size_t)written >= sizeof fresh - length) return 0;
    length += (size_t)written;
  }
  return spank_setenv(spank, "CUDA_VISIBLE_DEVICES", fresh, 1) == ESPANK_SUCCESS ? 0 : -1;
}

// Slurm sets the step's list before this hook ...
int slurm_spank_user_init(spank_t spank, int count, char** arguments) { return rewrite(spank, count, arguments); }

// ... and that of a task to which it binds GPUs before this one.
int slurm_spank_task_init(spank_t spank, int count, char** arguments) { return rewrite(spank, count, arguments); }
