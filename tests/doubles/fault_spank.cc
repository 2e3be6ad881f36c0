// A SPANK plugin that fails at one place in one way, to see what Slurm makes of it. Its arguments name the place and
// the way: place=task_init.remote fault=segv. A place is a callback and a context: local (srun), allocator (sbatch,
// salloc), remote (slurmstepd), slurmd, job_script (prolog and epilog). place=option.local and option.remote are the
// callback of the option --fault, which exists with these two alone.
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" {
#include <slurm/spank.h>
}

// In C++ these are exported only when they are declared before SPANK_PLUGIN defines them.
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(fault_double, 1)
}

namespace {

std::string place_to_fail, fault;  // of plugstack.conf; an option callback does not get the arguments

std::string argument(std::string_view name, int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    const std::string_view word = arguments[i];
    if (word.substr(0, name.size()) == name) return std::string(word.substr(name.size()));
  }
  return {};
}

std::string_view context_name() {
  switch (spank_context()) {
    case S_CTX_LOCAL:
      return "local";
    case S_CTX_REMOTE:
      return "remote";
    case S_CTX_ALLOCATOR:
      return "allocator";
    case S_CTX_SLURMD:
      return "slurmd";
    case S_CTX_JOB_SCRIPT:
      return "job_script";
    default:
      return "none";
  }
}

[[noreturn]] void die_of(int number) {
  // The death is what is tested; a core file in whatever folder would be left behind.
  const rlimit no_core = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
  (void)std::signal(number, SIG_DFL);
  if (number == SIGABRT) std::abort();
  for (;;) (void)raise(number);
}

int fail() {
  if (fault == "-1") return -1;
  if (fault == "+1") return 1;
  if (fault == "throw") {
    const rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    throw 1;
  }
  if (fault == "abort") die_of(SIGABRT);
  if (fault == "segv") die_of(SIGSEGV);
  if (fault == "exit(0)") std::exit(0);
  if (fault == "exit(1)") std::exit(1);
  while (fault == "block") (void)pause();
  return 0;
}

int fail_at(std::string_view callback) {
  return place_to_fail == std::string(callback) + "." + std::string(context_name()) ? fail() : 0;
}

// The arguments come with every callback, and the first one differs: init, or job_prolog in a process of its own.
int reach(std::string_view callback, int count, char** arguments) {
  place_to_fail = argument("place=", count, arguments);
  fault = argument("fault=", count, arguments);
  return fail_at(callback);
}

int option_callback(int /*value*/, const char* /*text*/, int /*remote*/) { return fail_at("option"); }

}  // namespace

extern "C" {

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  if (argument("place=", count, arguments).rfind("option.", 0) == 0) {
    static char name[] = "fault", help[] = "fail here", value[] = "N";
    spank_option option = {name, value, help, 1, 0, option_callback};
    (void)spank_option_register(spank, &option);
  }
  return reach("init", count, arguments);
}

#define HOOK(name) \
  int slurm_spank_##name(spank_t, int count, char** arguments) { return reach(#name, count, arguments); }
HOOK(init_post_opt)
HOOK(local_user_init)
HOOK(user_init)
HOOK(task_init_privileged)
HOOK(task_init)
HOOK(task_post_fork)
HOOK(task_exit)
HOOK(job_prolog)
HOOK(job_epilog)
HOOK(slurmd_exit)
HOOK(exit)

}  // extern "C"
