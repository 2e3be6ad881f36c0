// Programs that are known by their names, and tools that start a program without the variables of its task.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/program/program_files.h"
#include "core/util/text.h"

namespace bootstrap {

constexpr std::string_view kStartsRanks = " starts its own ranks";

namespace {

template <class Meaning>
struct Named {
  std::string_view names;  // separated by spaces
  Meaning meaning;
};

constexpr std::string_view kWorkers = " starts its own workers";
constexpr std::string_view kOthers = " starts other programs";
constexpr std::string_view kServes = " is a server";
constexpr std::string_view kShows = " shows what a node has";

// Open MPI 4 and 5: mpirun(1), which starts the ranks of its own node, and its daemons on other nodes.
constexpr std::string_view kOpenMpi = "mpirun mpiexec orterun oshrun shmemrun prterun";
constexpr std::string_view kOpenMpiDaemons = "orted prted";

struct KnownLauncher {
  std::string_view reason = {};
  bool runs_commands = false;
};

// Each row has its source in front of it. Behind those with `true` another program's command line follows, as in
// mpirun python3 train.py.
constexpr auto kLaunchers = std::to_array<Named<KnownLauncher>>({
    {kOpenMpi, {kStartsRanks, true}},
    {kOpenMpiDaemons, {kStartsRanks}},
    // MPICH, MVAPICH2, Intel MPI, MATLAB and HP MPI; daemons that they start by srun.
    {"mpirun_rsh prun", {kStartsRanks, true}},
    {"prte hydra_pmi_proxy hydra_bstrap_proxy pmi_proxy mpispawn smpd mw_smpd mw_mpiexec mpd mpid yod", {kStartsRanks}},
    // Other resource managers and sites: aprun(1), jsrun(1), flux(1), ibrun (TACC), lrun (LLNL), charmrun, LIKWID.
    {"aprun jsrun flux ibrun lrun charmrun poe ccc_mprun mpprun palsrun likwid-mpirun", {kStartsRanks, true}},
    // Flux's daemon; UPC, UPC++, GASNet, NVIDIA Legate, HPE Dragon, DLRover.
    {"flux-broker upcrun upcxx-run gasnetrun_ibv gasnetrun_ucx gasnetrun_ofi gasnetrun_mpi legate dragon dlrover-run",
     {kStartsRanks}},
    // The launchers of frameworks (the console scripts of each), which start Python scripts; PyTorch's torchrun and
    // torchx.
    {"torchrun torchx torchft_lighthouse torchrunx accelerate accelerate-launch deepspeed deepspeed.pt ds ds_ssh "
     "composer lightning fabric lightning_app trl llamafactory-cli axolotl tune colossalai paddlerun fleetrun "
     "bpslaunch byteps kungfu-run oneflow msrun megatron swift xtuner mim",
     {kStartsRanks}},
    {"horovodrun hvdrun", {kStartsRanks, true}},
    // Pools of workers and agents: ray(1), dask-*(1), wandb agent, prefect, celery(1), rq, luigi, parsl, ipyparallel,
    // pueue, HTCondor's glide-ins, Globus Compute, Merlin, Airflow, Dagster, MLflow, jug, greasy (BSC), RADICAL-Pilot.
    {"ray wandb dask dask-worker dask-scheduler dask-mpi dask-cuda-worker dask-ssh prefect celery rq luigi luigid "
     "parsl pueued process_worker_pool.py ipcluster ipengine ipcontroller clearml-agent work_queue_worker "
     "vine_worker hq spark-submit spark-class scoop condor_master condor_startd condor_starter "
     "globus-compute-endpoint funcx-endpoint merlin airflow dagster mlflow jug greasy radical-pilot-agent optuna",
     {kWorkers}},
    // Inference servers that start a worker for each GPU, notebooks, databases, remote shells and desktops.
    {"vllm sglang text-generation-launcher tritonserver trtllm-serve lmdeploy ollama llama-server jupyter jupyter-lab "
     "jupyter-notebook jupyterhub-singleuser jupyterhub rserver code-server tensorboard streamlit gradio uvicorn "
     "gunicorn redis-server mongod sshd dropbear Xvfb vncserver xpra slurmd nginx httpd postgres mysqld",
     {kServes}},
    // Slurm's own; farms: parallel(1), xargs(1), find(1) -exec; other hosts, users and terminals.
    {"srun salloc parallel sem rush xargs find watch entr tmux screen script expect sudo su sg ssh rsh pdsh clush "
     "nsenter unshare chroot bwrap systemd-run dbus-run-session ssh-agent daemonize tini dumb-init busybox toybox",
     {kOthers, true}},
    // Workflows: snakemake(1), nextflow, make(1), just, Task, DVC, doit, Invoke, Kedro, Metaflow, Guild AI; test
    // runners, installers; servers of debuggers (GDB, TotalView, STAT) and of DMTCP.
    {"sbatch sattach snakemake nextflow cwltool cromwell pegasus-run disBatch disbatch make gmake ninja cmake ctest "
     "bazel scons waf just task dvc doit invoke kedro metaflow guild honcho foreman overmind at pytest py.test tox nox "
     "pip pip3 conda mamba supervisord runit s6-supervise gdbserver tvdsvr STATD dmtcp_coordinator",
     {kOthers}},
    // Tools of NVIDIA, AMD, Intel and hwloc; DCGM; compilers.
    {"nvidia-smi nvidia-debugdump dcgmi nvtop nvitop gpustat rocm-smi amd-smi rocminfo clinfo sycl-ls xpu-smi xpumcli "
     "lstopo lstopo-no-graphics hwloc-ls lscpu lspci numastat ibstat ibv_devinfo nvcc hipcc",
     {kShows}},
});

// Names that have a suffix on some systems: mpirun.openmpi (Debian), mpiexec.hydra, torchrun_jsc (Juelich).
constexpr std::string_view kWithSuffix = "mpirun mpiexec orterun dask jupyter torchrun";

// python -m: sources as above.
constexpr auto kModules = std::to_array<Named<std::string_view>>({
    {"torch.distributed.run torch.distributed.launch torch.distributed.elastic torch.multiprocessing.spawn "
     "torch_xla.distributed.xla_spawn accelerate.commands.launch accelerate.commands.accelerate_cli accelerate "
     "deepspeed.launcher.runner deepspeed.launcher.launch deepspeed lightning.fabric lightning.fabric.cli "
     "lightning_fabric lightning_fabric.cli lightning composer.cli.launcher composer horovod.runner.launch "
     "horovod.runner.run_task horovod.run paddle.distributed.launch trl llamafactory.cli colossalai.cli torchx.cli "
     "torchrunx",
     kStartsRanks},
    {"ray ray.scripts.scripts wandb distributed.cli.dask_worker dask_worker distributed dask celery "
     "submitit.core._submit joblib.externals.loky.backend.popen_loky_posix ipyparallel.engine scoop mpi4py.futures "
     "executorlib.backend parsl.executors.high_throughput.process_worker_pool",
     kWorkers},
    {"vllm.entrypoints.openai.api_server sglang.launch_server http.server jupyter notebook jupyterlab jupyter_server "
     "ipykernel ipykernel_launcher IPython uvicorn tensorboard.main streamlit",
     kServes},
    {"snakemake pytest unittest pip venv ensurepip build tox nox", kOthers},
});

constexpr std::string_view kShells =
    "bash rbash sh dash ash zsh ksh ksh93 mksh pdksh csh tcsh fish pwsh xonsh nu elvish rc es yash posh";

// Compiled programs that run a script. Like a shell's script, it may start anything.
constexpr std::string_view kInterpreters =
    "perl ruby irb node nodejs deno bun Rscript R julia lua luajit php tclsh wish octave octave-cli matlab MATLAB java "
    "scala "
    "groovy awk gawk mawk sed guile racket sbcl ghci swipl gnuplot sas stata stata-mp mathematica wolframscript";

// Commands of the system that jobs run on their nodes before and after a training: coreutils, procps, archivers.
constexpr std::string_view kSystemCommands =
    "cat chgrp chmod chown cmp cp cut date dd df diff dir dirname du echo egrep fgrep file free grep gunzip gzip "
    "head hostid hostname id install kill killall last ldd ln ls lsmod lsof lspci md5sum mkdir mkfifo mktemp "
    "mount mountpoint mv nproc paste pgrep pidof ping pkill printf ps pwd readlink realpath rm rmdir rsync scp "
    "seq sha256sum sha512sum shuf sleep sort stat sync tac tail tar tee test top touch tr truncate umount uname "
    "uniq unlink unzip uptime vmstat wc wget who whoami xz zcat zip zstd";

constexpr std::string_view kClear =
    "bash sh dash zsh ksh csh tcsh fish mpirun mpiexec prterun orterun srun torchrun accelerate deepspeed horovodrun";

// Names that a user's own file in a folder may have, too.
constexpr std::string_view kCommonWords =
    "tune task just rush watch dragon merlin greasy jug scoop guild swift flux script at";

constexpr auto kTools = std::to_array<Named<Tool>>({
    // coreutils, util-linux, numactl(8), hwloc-bind(1), LIKWID, Debian's xvfb and expect.
    {"env time nice ionice timeout stdbuf nohup setsid taskset chrt flock prlimit setpriv choom setarch linux32 "
     "linux64 uclampset numactl numawrap hwloc-bind likwid-pin likwid-perfctr xvfb-run unbuffer catchsegv eatmydata "
     "faketime fakeroot proot firejail cgexec cpulimit schedtool direnv guix spack",
     Tool::kWrapper},
    // Profilers and debuggers: NVIDIA, AMD, Intel, Linaro Forge, TotalView, HPE, HPCToolkit, TAU, Score-P, Linux.
    {"nsys ncu nvprof dlprof compute-sanitizer cuda-memcheck cuda-gdb rocprof rocprofv2 rocprofv3 rocprof-compute "
     "rocprof-sys-run rocprof-sys-sample omnitrace-run omnitrace-sample omniperf rocgdb vtune amplxe-cl advisor "
     "advixe-cl inspxe-cl aps gdb-oneapi map ddt perf-report forge totalview pat_run hpcrun tau_exec scorep-wrapper "
     "perf strace ltrace valgrind gdb lldb heaptrack gprofng tracy-capture uftrace bpftrace py-spy austin",
     Tool::kWrapper},
    {"coverage kernprof viztracer scalene memray pyinstrument fil-profile ddtrace-run opentelemetry-instrument "
     "newrelic-admin dotenv",
     Tool::kPython},
    {"conda mamba micromamba uv uvx poetry pixi pipenv pdm hatch rye pyenv", Tool::kEnvironment},
    {"apptainer singularity podman podman-hpc docker nerdctl shifter sarus enroot ch-run udocker charliecloud",
     Tool::kContainer},
});

constexpr std::string_view kSubcommands =
    "run exec start shell shared-run profile launch record stat trace shell-run env build-env";

template <class Meaning, std::size_t N>
Meaning find_name(const std::array<Named<Meaning>, N>& table, std::string_view name) noexcept {
  const auto row = std::find_if(table.begin(), table.end(), [&](const auto& one) { return has_word(one.names, name); });
  return row == table.end() ? Meaning() : row->meaning;
}

std::string names_in(const auto& table) {
  std::string all;
  for (const auto& row : table) all.append(row.names).append(" ");
  return all;
}

// "mpirun" of "mpirun.openmpi".
std::string_view stem_of(std::string_view name) noexcept { return name.substr(0, name.find_first_of(".-_")); }

bool is_numbered(std::string_view name, std::string_view stem, std::string_view numbers) noexcept {
  return name.starts_with(stem) && name.find_first_not_of(numbers, stem.size()) == std::string_view::npos;
}

// The letters of "-ce"; none for a long option.
std::string_view letters_of(std::string_view option) {
  return option.starts_with("-") && !option.starts_with("--") ? option.substr(1) : std::string_view();
}

KnownLauncher launcher_of(std::string_view name) noexcept {
  const auto stem = stem_of(name);
  const bool has_suffix = stem != name && !is_python_script(name) && has_word(kWithSuffix, stem);
  const auto launcher = find_name(kLaunchers, name);
  return launcher.reason.empty() && has_suffix ? find_name(kLaunchers, stem) : launcher;
}

}  // namespace

bool is_long_option(std::string_view option, std::string_view shortest, std::string_view whole) {
  return option.starts_with(shortest) && whole.starts_with(option);
}

std::string_view launcher_reason(std::string_view name) noexcept { return launcher_of(name).reason; }
bool runs_commands(std::string_view name) noexcept { return launcher_of(name).runs_commands; }

std::string_view launcher_module_reason(std::string_view module) noexcept { return find_name(kModules, module); }

bool starts_ranks_of_mpirun(std::string_view name) noexcept {
  return has_word(kOpenMpi, name) || has_word(kOpenMpiDaemons, name) ||
         has_word("mpirun.openmpi mpiexec.openmpi", name);
}

std::string names_of_launchers() { return names_in(kLaunchers) + names_in(kTools); }
std::string names_of_launcher_modules() { return names_in(kModules); }
std::string names_of_shells() { return std::string(kShells); }

bool is_users_file(std::string_view word) noexcept {
  const auto name = word.substr(word.rfind('/') + 1);
  const auto folder = word.substr(0, word.size() - name.size());
  return !folder.empty() && !folder.starts_with("/") && !folder.ends_with("bin/") && has_word(kCommonWords, name);
}

bool is_shell(std::string_view name) noexcept {
  const auto stem = name.substr(0, name.find('-'));  // bash-5.2, zsh-5.9
  return has_word(kShells, name) || (has_word(kShells, stem) && is_numbered(name, stem, "0123456789.-"));
}

bool is_system_command(std::string_view word) noexcept {
  for (const std::string_view folder : {"/bin/", "/usr/bin/"}) {
    if (word.starts_with(folder)) word.remove_prefix(folder.size());
  }
  return has_word(kSystemCommands, word);
}

bool is_interpreter(std::string_view name) noexcept {
  const auto base = name.substr(0, name.find_last_not_of("0123456789.") + 1);  // julia-1.10, octave-cli-8.2
  const bool is_versioned = base.ends_with('-') && name.find('.', base.size()) != std::string_view::npos;
  if (is_versioned && has_word(kInterpreters, base.substr(0, base.size() - 1))) return true;
  const auto stem = name.substr(0, name.find_first_of("0123456789."));  // perl5.36, lua5.4
  return has_word(kInterpreters, name) ||
         (has_word("perl lua ruby tclsh php", stem) && is_numbered(name, stem, "0123456789."));
}

bool is_python(std::string_view name) noexcept {
  if (name.starts_with("i")) name.remove_prefix(1);
  return is_numbered(name, "python", "0123456789.dmt-") || is_numbered(name, "pypy", "0123456789.dmt-");
}

bool is_python_script(std::string_view name) noexcept { return name.size() > 3 && name.ends_with(".py"); }

bool is_clear_name(std::string_view name) noexcept { return has_word(kClear, name) || has_word(kClear, stem_of(name)); }

Tool tool_of(std::string_view name) noexcept { return find_name(kTools, name); }

bool is_subcommand(std::string_view word) noexcept { return has_word(kSubcommands, word); }

bool is_identifier(std::string_view word) {
  return !word.empty() && !is_digit(word[0]) &&
         std::all_of(word.begin(), word.end(), [](char c) { return is_alphanumeric(c) || c == '_' || c == '.'; });
}

bool is_assignment(std::string_view word) {
  const auto equals = word.find('=');
  return equals != word.npos && is_identifier(word.substr(0, equals));
}

bool is_launcher_process(int count, const char* const* words) noexcept {
  if (count < 1 || words == nullptr || words[0] == nullptr) return false;
  const auto word = [&](std::size_t i) noexcept { return std::string_view(words[i] == nullptr ? "" : words[i]); };
  const auto is_launcher = [](std::string_view path) noexcept {
    return (is_launcher_name(file_name_of(path)) && !is_users_file(path)) || is_torchrun_script(path);
  };
  if (is_launcher(word(0))) return true;
  if (!is_python(file_name_of(word(0)))) return false;
  const auto command = read_python(static_cast<std::size_t>(count), word);
  if (command.script != 0) return is_launcher(word(command.script));
  return is_torchrun_module(command.module) || !launcher_module_reason(command.module).empty();
}

// env(1); `apptainer help exec`: -e, --cleanenv; -C, --containall; --compat, which has --containall. Not -c, --contain,
// which is about folders.
bool closes_environment(std::string_view tool, std::string_view option) noexcept {
  const auto letters = letters_of(option);
  if (tool == "env") {
    const auto own = letters.substr(0, letters.find_first_of("uCS"));  // the value of one of these follows
    return option == "-" || own.find('i') != std::string_view::npos ||
           is_long_option(option, "--i", "--ignore-environment");
  }
  const auto own = letters.substr(0, letters.find_first_of("BHSWow"));
  return (tool == "apptainer" || tool == "singularity") &&
         (has_word("--cleanenv --containall --compat", option) || own.find_first_of("eC") != std::string_view::npos);
}

// sudo(8): -E, --preserve-env, --preserve-env=RANK,...
bool sudo_closes_environment(std::span<const std::string> arguments) {
  bool is_value = false;
  for (const std::string_view word : arguments) {
    const auto letters = letters_of(word);
    if (std::exchange(is_value, false)) continue;
    is_value = !letters.empty() && std::string_view("CDRTUghprtu").find(letters.back()) != std::string_view::npos;
    if (!word.starts_with("-") || word == "--") break;
    if (word.starts_with("--preserve-env") || letters.find('E') != std::string_view::npos) return false;
  }
  return true;
}

std::string describe_closed_environment(std::string_view tool, std::string_view option) {
  const auto what = option.empty() ? std::string(tool) : cat({tool, " ", printable(option)});
  auto remedy = cat({"use ", tool, " without ", printable(option)});
  if (tool == "sudo") remedy = "use sudo --preserve-env, if your site allows it";
  if (tool == "apptainer") remedy += ", or pass them from a shell of each task, as APPTAINERENV_RANK and so on";
  if (tool == "singularity") remedy += ", or pass them from a shell of each task, as SINGULARITYENV_RANK and so on";
  return cat({quote(what, 60), " keeps RANK, MASTER_ADDR and the other variables from the program; ", remedy});
}

}  // namespace bootstrap
