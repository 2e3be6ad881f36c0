// Makes one call of the plugin fail. Preloaded into srun, sbatch, slurmd or slurmstepd, it replaces the functions that
// spank_bootstrap.so calls, and recognises the plugin's calls by their return address. FAULT_CALLS says what to do:
//   count                     a line "count HOOK FUNCTION NUMBER" when a hook has returned, for each function it called
//   user_init:malloc:12       the twelfth malloc in user_init fails, and leaves the line "failed user_init malloc 12"
//   user_init:malloc:12+      that call and all later ones in this hook
// Calls outside of hooks (when the plugin is loaded, and in callbacks of options) count as the hook "load". The lines
// go to /tmp/fault_calls.log if this file exists.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// It makes read() and others inline functions of libc's headers, and clang accepts no second definition.
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char kPlugin[] = "/spank_bootstrap.so";
static const char kLog[] = "/tmp/fault_calls.log";

enum { kLoad, kHooks = 9, kMaxFunctions = 64, kNameSize = 32 };
static const char* const kHookNames[kHooks] = {"load",      "init",           "init_post_opt", "local_user_init",
                                               "user_init", "task_post_fork", "task_init",     "task_exit",
                                               "exit"};

static int hook = kLoad;
static const char* function_names[kMaxFunctions];
static unsigned counts[kHooks][kMaxFunctions];

static struct {
  bool is_counting, is_lasting;
  char hook[kNameSize], function[kNameSize];
  unsigned number;
} order;

static uintptr_t plugin_begin, plugin_end;
static unsigned long long objects_seen;

static void note(const char* format, ...) {
  char line[160];
  va_list words;
  va_start(words, format);
  const int length = vsnprintf(line, sizeof line, format, words);
  va_end(words);
  const int file = open(kLog, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  if (write(file, line, (size_t)length) != length) abort();  // else a test would miss this line
  (void)close(file);
}

// Programs of the user must not inherit these variables, but programs that start Slurm's (env, setpriv) must pass
// them on.
__attribute__((constructor)) static void read_order(void) {
  const char* const text = getenv("FAULT_CALLS");
  if (text != NULL) {
    char number[kNameSize] = "";
    order.is_counting = strcmp(text, "count") == 0;
    if (sscanf(text, "%31[^:]:%31[^:]:%31s", order.hook, order.function, number) == 3) {
      order.number = (unsigned)strtoul(number, NULL, 10);
      order.is_lasting = strchr(number, '+') != NULL;
    }
  }
  const char* const name = program_invocation_short_name;
  if (strncmp(name, "slurm", 5) != 0 && strcmp(name, "srun") != 0 && strcmp(name, "sbatch") != 0) return;
  (void)unsetenv("FAULT_CALLS");
  (void)unsetenv("LD_PRELOAD");
}

static int find_plugin(struct dl_phdr_info* object, size_t size, void* unused) {
  (void)size, (void)unused;
  if (objects_seen == object->dlpi_adds) return 1;  // nothing was loaded since the last time
  const char* const place = strstr(object->dlpi_name, kPlugin);
  if (place == NULL || place[sizeof kPlugin - 1] != '\0') return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
    if (plugin_begin == 0) plugin_begin = begin;
    plugin_end = begin + object->dlpi_phdr[i].p_memsz;
  }
  return 1;
}

static int note_objects(struct dl_phdr_info* object, size_t size, void* unused) {
  (void)size, (void)unused;
  objects_seen = object->dlpi_adds;
  return 1;
}

static bool is_plugins(const void* address) {
  if (plugin_begin == 0) {
    (void)dl_iterate_phdr(find_plugin, NULL);
    (void)dl_iterate_phdr(note_objects, NULL);
  }
  return (uintptr_t)address >= plugin_begin && (uintptr_t)address < plugin_end;
}

// Counts a call of the plugin. Returns true if it is to fail.
static bool is_to_fail(int* place, const char* function, const void* caller) {
  if (!is_plugins(caller)) return false;
  for (int i = 0; *place == 0 && i < kMaxFunctions; ++i) {
    if (function_names[i] != NULL && strcmp(function_names[i], function) != 0) continue;
    function_names[i] = function;
    *place = i + 1;
  }
  const unsigned number = ++counts[hook][*place - 1];
  if (order.is_counting && hook == kLoad) note("count load %s %u\n", function, number);  // it has no end
  if (number < order.number || (number > order.number && !order.is_lasting)) return false;
  if (order.number == 0 || strcmp(order.function, function) != 0 || strcmp(order.hook, kHookNames[hook]) != 0)
    return false;
  note("failed %s %s %u\n", order.hook, function, number);
  return true;
}

static void* (*real_dlsym)(void*, const char*);

static void* next(const char* function) {
  if (real_dlsym == NULL) *(void**)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  return real_dlsym(RTLD_NEXT, function);
}

// Defines FUNCTION: it calls the next library's, or does `failure` if this call is to fail.
#define FAULT(type, function, parameters, arguments, failure)         \
  type function parameters {                                          \
    static int place;                                                 \
    static type(*real) parameters;                                    \
    if (is_to_fail(&place, #function, __builtin_return_address(0))) { \
      failure;                                                        \
    }                                                                 \
    if (real == NULL) *(void**)&real = next(#function);               \
    return real arguments;                                            \
  }
#define WITH(number, result) \
  do {                       \
    errno = number;          \
    return result;           \
  } while (0)

// The search for the next function may itself call these two.
extern void* __libc_malloc(size_t size);
extern void* __libc_realloc(void* old, size_t size);
void* malloc(size_t size) {
  static int place;
  if (is_to_fail(&place, "malloc", __builtin_return_address(0))) WITH(ENOMEM, NULL);
  return __libc_malloc(size);
}
void* realloc(void* old, size_t size) {
  static int place;
  if (is_to_fail(&place, "realloc", __builtin_return_address(0))) WITH(ENOMEM, NULL);
  return __libc_realloc(old, size);
}

FAULT(spank_err_t, spank_setenv, (spank_t spank, const char* name, const char* text, int over),
      (spank, name, text, over), return ESPANK_ERROR)
FAULT(spank_err_t, spank_unsetenv, (spank_t spank, const char* name), (spank, name), return ESPANK_ERROR)
FAULT(spank_err_t, spank_option_register, (spank_t spank, struct spank_option* option), (spank, option),
      return ESPANK_ERROR)
FAULT(int, faccessat, (int folder, const char* path, int mode, int flags), (folder, path, mode, flags),
      WITH(EACCES, -1))
FAULT(int, bind, (int socket, const struct sockaddr* name, socklen_t size), (socket, name, size), WITH(EADDRINUSE, -1))
FAULT(int, fstat, (int file, struct stat* facts), (file, facts), WITH(EIO, -1))
FAULT(int, stat, (const char* path, struct stat* facts), (path, facts), WITH(EIO, -1))
FAULT(int, getaddrinfo, (const char* name, const char* service, const struct addrinfo* hints, struct addrinfo** found),
      (name, service, hints, found), return EAI_MEMORY)
FAULT(int, getnameinfo,
      (const struct sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
       socklen_t service_size, int flags),
      (address, size, host, host_size, service, service_size, flags), return EAI_MEMORY)
FAULT(ssize_t, getrandom, (void* bytes, size_t size, unsigned flags), (bytes, size, flags), WITH(ENOSYS, -1))
FAULT(int, getsockname, (int socket, struct sockaddr* name, socklen_t* size), (socket, name, size), WITH(ENOBUFS, -1))
FAULT(void*, mmap, (void* at, size_t size, int protection, int flags, int file, off_t offset),
      (at, size, protection, flags, file, offset), WITH(ENOMEM, MAP_FAILED))
FAULT(DIR*, opendir, (const char* path), (path), WITH(EMFILE, NULL))
FAULT(int, poll, (struct pollfd * files, nfds_t count, int wait), (files, count, wait), WITH(EINTR, -1))
FAULT(int, pthread_cond_timedwait, (pthread_cond_t * condition, pthread_mutex_t* mutex, const struct timespec* until),
      (condition, mutex, until), return ETIMEDOUT)
FAULT(int, pthread_create, (pthread_t * thread, const pthread_attr_t* how, void* (*body)(void*), void* argument),
      (thread, how, body, argument), return EAGAIN)
FAULT(ssize_t, process_vm_readv,
      (pid_t process, const struct iovec* own, unsigned long own_count, const struct iovec* its,
       unsigned long its_count, unsigned long flags),
      (process, own, own_count, its, its_count, flags), WITH(EPERM, -1))
FAULT(ssize_t, read, (int file, void* bytes, size_t size), (file, bytes, size), WITH(EIO, -1))
FAULT(struct dirent*, readdir, (DIR * folder), (folder), WITH(EIO, NULL))
FAULT(ssize_t, readlink, (const char* path, char* text, size_t size), (path, text, size), WITH(EIO, -1))
FAULT(ssize_t, recvfrom, (int socket, void* bytes, size_t size, int flags, struct sockaddr* from, socklen_t* from_size),
      (socket, bytes, size, flags, from, from_size), WITH(ENOBUFS, -1))
FAULT(int, sched_getaffinity, (pid_t process, size_t size, cpu_set_t* cores), (process, size, cores), WITH(EPERM, -1))
FAULT(int, sched_setaffinity, (pid_t process, size_t size, const cpu_set_t* cores), (process, size, cores),
      WITH(EPERM, -1))
FAULT(ssize_t, sendto,
      (int socket, const void* bytes, size_t size, int flags, const struct sockaddr* to, socklen_t to_size),
      (socket, bytes, size, flags, to, to_size), WITH(ENETUNREACH, -1))
FAULT(int, setenv, (const char* name, const char* text, int over), (name, text, over), WITH(ENOMEM, -1))
FAULT(int, setsockopt, (int socket, int level, int name, const void* value, socklen_t size),
      (socket, level, name, value, size), WITH(ENOBUFS, -1))
FAULT(int, shutdown, (int socket, int how), (socket, how), WITH(ENOTCONN, -1))
FAULT(int, socket, (int domain, int type, int protocol), (domain, type, protocol), WITH(EMFILE, -1))
FAULT(int, unsetenv, (const char* name), (name), WITH(EINVAL, -1))
FAULT(ssize_t, write, (int file, const void* bytes, size_t size), (file, bytes, size), WITH(EIO, -1))

// The same for a variadic function: the arguments behind `last`, each of type `word`. Up to six are passed on, whether
// the caller gave them or not.
#define FAULT_OF_MANY(type, function, parameters, last, word, arguments, failure) \
  type function parameters {                                                      \
    static int place;                                                             \
    static type(*real) parameters;                                                \
    word words[6];                                                                \
    va_list rest;                                                                 \
    va_start(rest, last);                                                         \
    for (int i = 0; i < 6; ++i) words[i] = va_arg(rest, word);                    \
    va_end(rest);                                                                 \
    if (is_to_fail(&place, #function, __builtin_return_address(0))) {             \
      failure;                                                                    \
    }                                                                             \
    if (real == NULL) *(void**)&real = next(#function);                           \
    return real arguments;                                                        \
  }
FAULT_OF_MANY(int, open, (const char* path, int flags, ...), flags, unsigned, (path, flags, words[0]), WITH(EMFILE, -1))
FAULT_OF_MANY(int, fcntl, (int file, int command, ...), command, long, (file, command, words[0]), WITH(EMFILE, -1))
FAULT_OF_MANY(long, syscall, (long number, ...), number, long,
              (number, words[0], words[1], words[2], words[3], words[4], words[5]), WITH(ENOSYS, -1))
FAULT_OF_MANY(spank_err_t, spank_get_item, (spank_t spank, spank_item_t item, ...), item, void*,
              (spank, item, words[0], words[1], words[2]), return ESPANK_ERROR)

// Slurm calls these in place of the hooks, so that the current hook is known.
static int (*real_hooks[kHooks])(spank_t, int, char**);

static int call(int which, spank_t spank, int count, char** arguments) {
  const int before = hook;
  hook = which;
  const int result = real_hooks[which](spank, count, arguments);
  for (int i = 0; order.is_counting && i < kMaxFunctions && function_names[i] != NULL; ++i) {
    if (counts[which][i] != 0) note("count %s %s %u\n", kHookNames[which], function_names[i], counts[which][i]);
  }
  hook = before;
  return result;
}

#define HOOK(which) \
  static int call_##which(spank_t spank, int count, char** arguments) { return call(which, spank, count, arguments); }
HOOK(1)
HOOK(2)
HOOK(3)
HOOK(4)
HOOK(5)
HOOK(6)
HOOK(7)
HOOK(8)
static int (*const kCalls[kHooks])(spank_t, int, char**) = {NULL,   call_1, call_2, call_3, call_4,
                                                            call_5, call_6, call_7, call_8};

// Slurm looks up hooks by dlsym and gets these instead. The plugin looks up functions of Slurm by dlsym.
void* dlsym(void* handle, const char* name) {
  static const char kPrefix[] = "slurm_spank_";
  static int place;
  if (is_to_fail(&place, "dlsym", __builtin_return_address(0))) return NULL;
  if (real_dlsym == NULL) (void)next("dlsym");
  void* const found = real_dlsym(handle, name);
  if (strncmp(name, kPrefix, sizeof kPrefix - 1) != 0 || !is_plugins(found)) return found;
  for (int i = 1; i < kHooks; ++i) {
    if (strcmp(name + sizeof kPrefix - 1, kHookNames[i]) != 0) continue;
    *(void**)&real_hooks[i] = found;
    void* instead = NULL;
    *(int (**)(spank_t, int, char**)) & instead = kCalls[i];
    return instead;
  }
  return found;
}
