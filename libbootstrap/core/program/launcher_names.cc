// Programs that are known by their names, and the options of those that start another program in their place.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/launcher_names.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace bootstrap {
namespace {

struct Named {
  std::string_view names;  // separated by spaces
  Business business;
};

// Each row has its source behind it.
constexpr auto kBusinesses = std::to_array<Named>({
    // MPI: mpirun(1), mpiexec(1) of Open MPI, MPICH, MVAPICH2 and Intel MPI; prte(1); daemons that they start by srun.
    {"mpirun mpiexec mpirun_rsh orterun oshrun shmemrun orted prted prte prterun prun", Business::kRanks},
    {"hydra_pmi_proxy hydra_bstrap_proxy pmi_proxy mpispawn smpd mpd yod", Business::kRanks},
    // Launchers of other resource managers and sites: aprun(1), jsrun(1), flux(1), ibrun (TACC), lrun (LLNL), charmrun.
    {"aprun jsrun flux ibrun lrun charmrun poe ccc_mprun mpprun palsrun", Business::kRanks},
    // Launchers of languages and runtimes: UPC and UPC++, GASNet, NVIDIA Legate, HPE Dragon, DLRover.
    {"upcrun upcxx-run gasnetrun_ibv gasnetrun_ucx gasnetrun_ofi gasnetrun_mpi legate dragon dlrover-run",
     Business::kRanks},
    // Slurm's own, which start a step or a job.
    {"srun sbatch salloc sattach", Business::kOthers},
    // PyTorch: torch.distributed.run; torchx; the launchers of frameworks (setup.py of each has its console scripts).
    {"torchrun torchx torchft_lighthouse torchrunx", Business::kRanks},
    {"accelerate accelerate-launch deepspeed deepspeed.pt ds ds_ssh composer horovodrun hvdrun", Business::kRanks},
    {"lightning fabric lightning_app trl llamafactory-cli axolotl tune colossalai pdsh", Business::kRanks},
    {"paddlerun fleetrun bpslaunch byteps kungfu-run oneflow msrun", Business::kRanks},
    {"megatron swift xtuner mim", Business::kRanks},
    // Pools of workers and agents: ray(1), dask-*(1), wandb agent, prefect, celery(1), rq, luigi, parsl, ipyparallel.
    {"ray wandb dask dask-worker dask-scheduler dask-mpi dask-cuda-worker dask-ssh prefect celery rq",
     Business::kWorkers},
    {"luigi luigid process_worker_pool.py ipcluster ipengine ipcontroller clearml-agent", Business::kWorkers},
    {"work_queue_worker vine_worker hq spark-submit spark-class scoop", Business::kWorkers},
    // HTCondor's glide-ins, Globus Compute, Merlin, Airflow, Dagster, MLflow, jug, greasy (BSC), RADICAL-Pilot.
    {"condor_master condor_startd condor_starter globus-compute-endpoint funcx-endpoint merlin airflow dagster mlflow",
     Business::kWorkers},
    {"jug greasy radical-pilot-agent optuna", Business::kWorkers},
    // Inference servers that start a worker for each GPU: vllm, sglang, text-generation-launcher, tritonserver(1).
    {"vllm sglang text-generation-launcher tritonserver trtllm-serve lmdeploy ollama llama-server", Business::kServes},
    {"jupyter jupyter-lab jupyter-notebook jupyterhub-singleuser jupyterhub ipython ipython3", Business::kServes},
    {"rserver code-server tensorboard streamlit gradio uvicorn gunicorn redis-server mongod", Business::kServes},
    {"sshd dropbear Xvfb vncserver xpra slurmd nginx httpd postgres mysqld", Business::kServes},
    // Workflows and farms: snakemake(1), nextflow, parallel(1), xargs(1), make(1), find(1) -exec, GNU screen, tmux(1).
    {"snakemake nextflow cwltool cromwell pegasus-run rush disBatch disbatch", Business::kOthers},
    {"parallel sem xargs make gmake ninja cmake ctest bazel scons waf find watch entr", Business::kOthers},
    {"tmux screen script expect sudo su sg ssh ssh-agent dbus-run-session rsh nsenter unshare chroot bwrap systemd-run "
     "at",
     Business::kOthers},
    {"pytest py.test tox nox pip pip3 conda mamba", Business::kOthers},
    // Tools of NVIDIA, AMD, Intel and hwloc; DCGM; compilers.
    {"nvidia-smi nvidia-debugdump dcgmi nvtop nvitop gpustat rocm-smi amd-smi rocminfo clinfo sycl-ls xpu-smi xpumcli",
     Business::kShows},
    {"lstopo lstopo-no-graphics hwloc-ls lscpu lspci numastat ibstat ibv_devinfo nvcc hipcc", Business::kShows},
    {"xvfb-run daemonize supervisord runit s6-supervise tini dumb-init busybox toybox", Business::kOthers},
});

// Names that have a suffix on some systems: mpirun.openmpi (Debian), mpiexec.hydra, mpirun-openmpi-gcc.
constexpr std::string_view kWithSuffix = "mpirun mpiexec orterun dask jupyter";

// python -m: sources as above.
constexpr auto kModules = std::to_array<Named>({
    {"torch.distributed.run torch.distributed.launch torch.distributed.elastic", Business::kRanks},
    {"torch.multiprocessing.spawn torch_xla.distributed.xla_spawn", Business::kRanks},
    {"accelerate.commands.launch accelerate.commands.accelerate_cli accelerate", Business::kRanks},
    {"deepspeed.launcher.runner deepspeed.launcher.launch deepspeed lightning.fabric lightning.fabric.cli",
     Business::kRanks},
    {"lightning_fabric lightning_fabric.cli lightning composer.cli.launcher composer horovod.runner.launch",
     Business::kRanks},
    {"horovod.runner.run_task horovod.run paddle.distributed.launch trl llamafactory.cli", Business::kRanks},
    {"colossalai.cli torchx.cli torchrunx", Business::kRanks},
    {"ray ray.scripts.scripts wandb distributed.cli.dask_worker dask_worker distributed dask celery",
     Business::kWorkers},
    {"submitit.core._submit joblib.externals.loky.backend.popen_loky_posix ipyparallel.engine scoop",
     Business::kWorkers},
    {"mpi4py.futures executorlib.backend parsl.executors.high_throughput.process_worker_pool", Business::kWorkers},
    {"vllm.entrypoints.openai.api_server sglang.launch_server http.server jupyter notebook jupyterlab",
     Business::kServes},
    {"jupyter_server ipykernel ipykernel_launcher IPython uvicorn tensorboard.main streamlit", Business::kServes},
    {"snakemake pytest unittest pip venv ensurepip build tox nox", Business::kOthers},
});

constexpr std::string_view kShells =
    "bash rbash sh dash ash zsh ksh ksh93 mksh pdksh csh tcsh fish pwsh xonsh nu elvish rc es yash posh";

// Compiled programs that run a script, which is its author's business as that of a shell is.
constexpr std::string_view kInterpreters =
    "perl ruby irb node nodejs deno bun Rscript R julia lua luajit php tclsh wish octave octave-cli matlab java scala "
    "groovy awk gawk mawk guile racket sbcl ghci swipl gnuplot sas stata stata-mp mathematica wolframscript";

// What a program that is not known starts, if it is a word of its command line.
constexpr std::string_view kStartedByOthers =
    "bash sh dash zsh ksh csh tcsh fish mpirun mpiexec prterun srun torchrun accelerate deepspeed horovodrun";

using L = SearchPlace;
constexpr std::string_view kApptainerFlags =
    "--nv --rocm --cleanenv -e --contain -c --containall -C --writable-tmpfs --fakeroot -f --no-home --writable -w "
    "--pid "
    "-p --ipc -i --userns -u --uts --net -n --no-init --compat --nvccli --no-eval --unsquash --disable-cache "
    "--allow-setuid --keep-privs --no-privs --no-umask --no-pid --no-compat --nohttps";
constexpr std::string_view kApptainerOptions =
    "--bind -B --env --env-file --pwd --cwd --home -H --overlay -o --workdir -W --scratch -S --mount --app --hostname "
    "--network --network-args --dns --security --add-caps --drop-caps --fusemount --no-mount --apply-cgroups "
    "--pem-path "
    "--cpus --memory --memory-swap --pids-limit --blkio-weight --shm-size";
constexpr std::string_view kDockerFlags =
    "--rm -i -t -it -ti --interactive --tty --gpu --mpi --nccl --cuda-mpi --openmpi-pmix --privileged --init "
    "--read-only "
    "--no-healthcheck --env-host --publish-all -P";
constexpr std::string_view kDockerOptions =
    "-v --volume -e --env --env-file --name -w --workdir --network --net --ipc --shm-size --gpus --device --mount -u "
    "--user --ulimit --security-opt --entrypoint --cap-add --cap-drop --runtime --pull --platform --hostname -h --pid "
    "--userns --annotation --group-add --label -l --memory -m --cpus --cpuset-cpus --tmpfs --uts --log-driver";
constexpr std::string_view kCondaFlags = "--no-capture-output --live-stream --dev -v --verbose --debug-wrapper-scripts";
constexpr std::string_view kMambaOptions = "-n --name -p --prefix --cwd -r --root-prefix -e --env -a --attach --label";

// numactl(8), taskset(1), timeout(1), ...: the manual page of each; uv, poetry, pixi, conda: `--help` of each;
// apptainer(1), podman-run(1), shifter(1), sarus(1), enroot(1), ch-run(1); nsys, ncu, compute-sanitizer: NVIDIA's user
// guides; perf(1), strace(1), gdb(1), valgrind(1), py-spy, rocprof, VTune: `--help` of each.
constexpr auto kPrefixes = std::to_array<Prefix>({
    {"env", "",
     "-i --ignore-environment -0 --null -v --debug --list-signal-handling --default-signal --ignore-signal "
     "--block-signal -",
     "-u --unset -C --chdir -S --split-string"},
    {"time", "", "-p --portability -v --verbose -a --append -q --quiet", "-f --format -o --output"},
    {"nice", "", "", "-n --adjustment"},
    {"ionice", "", "-t --ignore", "-c --class -n --classdata"},
    {"timeout", "", "--preserve-status --foreground -v --verbose", "-k --kill-after -s --signal", 1},
    {"stdbuf", "", "", "-i --input -o --output -e --error"},
    {"unbuffer", "", "-p", ""},
    {"nohup", "", "", ""},
    {"setsid", "", "-c --ctty -f --fork -w --wait", ""},
    {"taskset", "", "-a --all-tasks -c --cpu-list", "", 1},
    {"chrt", "", "-b --batch -f --fifo -i --idle -o --other -r --rr -R --reset-on-fork -v --verbose", "", 1},
    {"numactl", "", "--localalloc -l --all -a --balancing -b --huge --touch",
     "--interleave -i --preferred -p --preferred-many -P --membind -m --cpunodebind -N --physcpubind -C "
     "--weighted-interleave -w"},
    {"hwloc-bind", "", "--strict --single --cpubind --membind -q --quiet -v --verbose", "--mempolicy", 1},
    {"likwid-pin", "", "-q --quiet -i -S -m", "-c -s -p -d"},
    {"catchsegv", "", "", ""},
    {"flock", "", "-s --shared -x -e --exclusive -u --unlock -n --nonblock -o --close -F --no-fork --verbose",
     "-w --wait --timeout -E --conflict-exit-code", 1},
    {"prlimit", "", "--verbose", "", 0, L::kHere, true},
    {"setpriv", "", "--no-new-privs --clear-groups --keep-groups --init-groups --reset-env", "", 0, L::kHere, true},
    {"choom", "", "", "-n --adjust"},
    {"conda", "run", kCondaFlags, "-n --name -p --prefix --cwd", 0, L::kEnvironment},
    {"mamba", "run", kCondaFlags, kMambaOptions, 0, L::kEnvironment},
    {"micromamba", "run", kCondaFlags, kMambaOptions, 0, L::kEnvironment},
    {"uv", "run",
     "--no-project --frozen --locked --isolated --active --no-sync --offline -q --quiet -v --verbose --all-extras "
     "--all-groups --no-dev --dev --exact --script -s --no-cache -n --no-config --no-env-file --all-packages --refresh "
     "--native-tls",
     "--with --extra --group --python -p --project --directory --env-file --package --with-requirements --index "
     "--default-index --index-url --no-group --only-group --with-editable --no-extra --cache-dir --config-file -m "
     "--module",
     0, L::kEnvironment},
    {"poetry", "run", "", "", 0, L::kEnvironment},
    {"pixi", "run", "--frozen --locked --no-install --clean-env -q --quiet -v --verbose --as-is --no-lockfile-update",
     "-e --environment --manifest-path -m --feature", 0, L::kEnvironment},
    {"pipenv", "run", "", "", 0, L::kEnvironment},
    {"pdm", "run", "-s --site-packages", "-p --project", 0, L::kEnvironment},
    {"hatch", "run", "", "", 0, L::kEnvironment},
    {"rye", "run", "-v --verbose -q --quiet", "--pyproject", 0, L::kEnvironment},
    {"apptainer", "exec run", kApptainerFlags, kApptainerOptions, 1, L::kContainer},
    {"singularity", "exec run", kApptainerFlags, kApptainerOptions, 1, L::kContainer},
    {"podman-hpc", "run shared-run", kDockerFlags, kDockerOptions, 1, L::kContainer},
    {"podman", "run", kDockerFlags, kDockerOptions, 1, L::kContainer},
    {"docker", "run", kDockerFlags, kDockerOptions, 1, L::kContainer},
    {"nerdctl", "run", kDockerFlags, kDockerOptions, 1, L::kContainer},
    {"shifter", "", "--clearenv -E", "--image -i --module -m --volume -V --env -e --env-file --workdir -w --entrypoint",
     0, L::kContainer},
    {"sarus", "run", "--mpi -m --glibc --ssh --centralized-repository --init -t --tty",
     "--mount --device --mpi-type -w --workdir -e --env --entrypoint --annotation --name", 1, L::kContainer},
    {"enroot", "start", "-r --root -w --rw", "-e --env -m --mount -c --conf --rc", 1, L::kContainer},
    {"ch-run", "", "-w --write -W --write-fake --no-home --home -j --join -t --private-tmp --no-passwd --unsafe",
     "-b --bind -c --cd --set-env --unset-env -m --mount -u --uid -g --gid --join-ct --join-pid --join-tag", 1,
     L::kContainer},
    {"nsys", "profile launch", "-h", "-t -o -c -s -d -y -f -x -e -w -n -p -b", 0, L::kHere, true},
    {"ncu", "", "-f --force-overwrite --nvtx --csv --call-stack",
     "-o --export --set --section --metrics -k --kernel-name -c --launch-count -s --launch-skip --target-processes "
     "--kernel-id "
     "--replay-mode --nvtx-include --nvtx-exclude --log-file --clock-control --cache-control --devices --page -i "
     "--import",
     0, L::kHere, true},
    {"nvprof", "", "--print-gpu-trace --profile-child-processes -f", "-o --log-file --metrics -m -e --events", 0,
     L::kHere, true},
    {"compute-sanitizer", "", "", "--tool --log-file --target-processes --error-exitcode", 0, L::kHere, true},
    {"perf", "record stat trace", "-a -g -v -q -s -d -R -T -B -i --no-inherit --all-user --all-kernel",
     "-e --event -F --freq -o --output -c --count -C --cpu --call-graph -m -r --repeat -I -x -D --delay"},
    {"strace", "",
     "-f -ff -c -C -d -i -k -n -q -qq -r -t -tt -ttt -T -v -w -x -xx -y -yy -z -Z -F -D --follow-forks "
     "--seccomp-bpf --output-separately",
     "-e -o -s -a -b -E -I -O -P -S -u -X --trace --output"},
    {"ltrace", "", "-f -c -C -i -r -S -t -tt -T -b -L", "-e -o -s -a -n -u -x -l -A -D -F"},
    {"valgrind", "", "-v --verbose -q --quiet", "", 0, L::kHere, true},
    {"gdb", "", "--args -args -q -quiet -batch --batch -n -nx --quiet -return-child-result",
     "-ex --ex -x -iex --command"},
    {"cuda-gdb", "", "--args -args -q -quiet -batch --batch -n -nx --quiet", "-ex --ex -x -iex --command"},
    {"py-spy", "record",
     "-s --subprocesses -n --native -t --threads -i --idle -g --gil -F --function --nonblocking --full-filenames",
     "-o --output -f --format -r --rate -d --duration"},
    {"rocprof", "", "--stats --hip-trace --hsa-trace --sys-trace --roctx-trace --list-basic",
     "-o -i -d -m -t --timestamp --basenames"},
    {"rocprofv3", "",
     "--hip-trace --hsa-trace --kernel-trace --sys-trace --runtime-trace -r -s --stats -S --summary --marker-trace "
     "--memory-copy-trace --rccl-trace",
     "-o --output-file -d --output-directory -f --output-format -i --input --pmc"},
    {"rocprof-sys-run", "", "", "", 0, L::kHere, true},
    {"vtune", "", "-trace-mpi -start-paused -quiet -q",
     "-collect -c -result-dir -r -data-limit -d -knob -k -user-data-dir"},
    {"coverage", "run", "-a --append -p --parallel-mode --branch",
     "--rcfile --source --omit --include --data-file --context -m"},
    {"kernprof", "", "-l --line-by-line -v --view -b --builtin", "-o --outfile -s --setup -u --unit"},
});

std::string_view next_word(std::string_view& list) noexcept {
  const auto end = std::min(list.find(' '), list.size());
  const auto word = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return word;
}

template <std::size_t N>
Business find_business(const std::array<Named, N>& table, std::string_view name) noexcept {
  for (const auto& row : table) {
    if (has_word(row.names, name)) return row.business;
  }
  return Business::kNone;
}

}  // namespace

bool has_word(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    if (next_word(list) == word) return true;
  }
  return false;
}

Business business_of(std::string_view name) noexcept {
  const auto business = find_business(kBusinesses, name);
  if (business != Business::kNone) return business;
  const auto end = name.find_first_of(".-_");
  if (end == std::string_view::npos || is_python_script(name)) return Business::kNone;
  const auto stem = name.substr(0, end);
  return has_word(kWithSuffix, stem) ? find_business(kBusinesses, stem) : Business::kNone;
}

Business business_of_module(std::string_view module) noexcept { return find_business(kModules, module); }

bool is_torchrun_module(std::string_view module) noexcept {
  return module == "torch.distributed.run" || module == "torch.distributed.launch";
}

bool is_shell(std::string_view name) noexcept {
  if (has_word(kShells, name)) return true;
  // bash-5.2, zsh-5.9
  const auto dash = name.find('-');
  return dash != std::string_view::npos && name.find_first_not_of("0123456789.", dash + 1) == std::string_view::npos &&
         has_word(kShells, name.substr(0, dash));
}

bool is_started_by_others(std::string_view name) noexcept { return has_word(kStartedByOthers, name); }

bool is_interpreter(std::string_view name) noexcept {
  if (has_word(kInterpreters, name)) return true;
  // perl5.36, lua5.4
  const auto stem = name.substr(0, name.find_first_of("0123456789."));
  return (stem == "perl" || stem == "lua" || stem == "ruby" || stem == "tclsh") && !name.ends_with(".pl");
}

bool is_python(std::string_view name) noexcept {
  for (const std::string_view stem : {"python", "pypy"}) {
    if (!name.starts_with(stem)) continue;
    return name.substr(stem.size()).find_first_not_of("0123456789.dmt-") == std::string_view::npos;
  }
  return false;
}

bool is_python_script(std::string_view name) noexcept { return name.size() > 3 && name.ends_with(".py"); }

const Prefix* find_prefix(std::string_view name) noexcept {
  for (const auto& prefix : kPrefixes) {
    if (prefix.name == name) return &prefix;
  }
  return nullptr;
}

}  // namespace bootstrap
