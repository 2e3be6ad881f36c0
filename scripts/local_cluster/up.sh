# shellcheck shell=bash
# shellcheck disable=SC2154 # the sourcing script and state.sh set what is named below
# `cluster up`: checks the request, writes the configuration, starts init and waits until every node is idle.

# shellcheck source=scripts/local_cluster/configuration.sh
source "${repository:?}/scripts/local_cluster/configuration.sh"
# shellcheck source=scripts/local_cluster/exec.sh
source "$repository/scripts/local_cluster/exec.sh"

number_of() {
  if [[ ! $2 =~ ^[0-9]{1,4}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then misused "up: $1 $2 is not a number from $3 to $4"; fi
  printf '%d' $((10#$2))
}

# Numbers of the machine's own /dev/nvidiaN, ascending, with blanks in between.
real_gpus() {
  local path numbers=()
  for path in /dev/nvidia[0-9]*; do [[ ! -c $path ]] || numbers+=("${path#/dev/nvidia}"); done
  ((${#numbers[@]})) || return 0
  printf '%s\n' "${numbers[@]}" | sort -n | paste -s -d ' '
}

# One number for all nodes or one for each, as one number for each with blanks in between.
gpu_counts_of() {
  local words word counts=() node
  IFS=, read -ra words <<<"$1,"
  for word in "${words[@]}"; do
    counts+=("$(number_of --gpus "$word" 0 64)") || exit
  done
  if ((${#counts[@]} == 1)); then
    for ((node = 1; node < node_count; node++)); do counts+=("${counts[0]}"); done
  fi
  ((${#counts[@]} == node_count)) ||
    misused "up: --gpus $1 has ${#counts[@]} numbers for $node_count nodes; give one number, or one for every node"
  printf '%s' "${counts[*]}"
}

parse_up() {
  local gpus=2
  node_count=2 cpu_count=4 socket_count=1 cgroup_version='' plugstack_file='' plugin_arguments='' overrides=() slurmd_variables=()
  gpu_env=all real_gpu_numbers='' slurm_prefix='' names=hosts ip=4
  plugin=$repository/build/release/spank_plugin/spank_bootstrap.so
  select_cluster default
  while (($#)); do
    case $1 in
      --ipv6) ip=6 && shift && continue ;;
      --no-plugin) plugin='' && shift && continue ;;
      --constrain-devices) cgroup_version=any && shift && continue ;;
      --constrain-devices=v[12]) cgroup_version=${1#*=} && shift && continue ;;
    esac
    (($# >= 2)) || misused "up: option $1 is not known or has no value"
    case $1 in
      --name) select_cluster "$2" ;;
      --nodes) node_count=$(number_of "$1" "$2" 1 999) ;;
      --gpus) gpus=$2 ;;
      --gpu-env)
        [[ $2 =~ ^(nvidia|amd|intel|all)$ ]] || misused "up: --gpu-env '$2' is none of nvidia, amd, intel and all"
        gpu_env=$2
        ;;
      --names)
        [[ $2 =~ ^(hosts|none|again)$ ]] || misused "up: --names '$2' is none of hosts, none and again"
        names=$2
        ;;
      --cpus) cpu_count=$(number_of "$1" "$2" 1 1024) ;;
      --sockets) socket_count=$(number_of "$1" "$2" 1 64) ;;
      --plugin) plugin=$2 ;;
      --plugin-args) plugin_arguments=$2 ;;
      --plugstack) plugstack_file=$2 plugin='' ;;
      --slurm) slurm_prefix=$2 ;;
      --set)
        [[ $2 =~ ^[A-Za-z][A-Za-z0-9]*= ]] || misused "up: --set '$2' is not of the form KEY=VALUE"
        overrides+=("$2")
        ;;
      --slurmd-env)
        [[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || misused "up: --slurmd-env '$2' is not of the form NAME=VALUE"
        slurmd_variables+=("$2")
        ;;
      *) misused "up: option $1 is not known" ;;
    esac
    shift 2
  done
  if [[ $gpus == real ]]; then
    real_gpu_numbers=$(real_gpus)
    gpus=$(wc -w <<<"$real_gpu_numbers")
    ((gpus)) || fail "looked for the machine's own GPUs, there is no /dev/nvidia0; leave --gpus real out"
  fi
  gpu_counts=$(gpu_counts_of "$gpus")
  ((cpu_count % socket_count == 0)) ||
    misused "up: --cpus $cpu_count cannot be divided over --sockets $socket_count; give a multiple"
}

# Sets slurm_prefix and slurm_version. The machine's own Slurm is not always the one in PATH.
choose_slurm() {
  local tool prefix=$slurm_prefix
  if [[ -z $prefix ]]; then
    tool=$(command -v slurmctld) ||
      fail "looked for slurmctld in PATH, which is not there; run scripts/setup, or name the prefix of a Slurm with --slurm"
    prefix=$(dirname "$tool")/..
  fi
  slurm_prefix=$(readlink -f "$prefix") || fail "looked for $prefix, which is not there; name the prefix of a Slurm"
  for tool in sbin/slurmctld sbin/slurmd bin/srun bin/sinfo; do
    [[ -x $slurm_prefix/$tool ]] ||
      fail "looked for $tool of Slurm below $slurm_prefix, which has none; name the prefix that Slurm was configured with"
  done
  slurm_version=$("$slurm_prefix/sbin/slurmd" -V) ||
    fail "cannot ask $slurm_prefix/sbin/slurmd for its version: it does not start (its message is above); install what it needs"
  slurm_version=${slurm_version##* }
}

# Slurm would go on without a plugin of another release.
check_plugin_release() {
  local mark release=${slurm_version%.*}
  mark=$(grep -aom 1 'slurm-bootstrap plugin [^ ]* for Slurm [0-9.]*' "$plugin") || return 0
  mark=${mark##* }
  [[ ${mark%.*} == "$release" ]] ||
    fail "looked at the plugin $plugin, which is for Slurm $mark and not for $slurm_version in $slurm_prefix; build one with SLURM_ROOT=$slurm_prefix cmake --preset release -B build/slurm-$release, and name it with --plugin"
}

# Names the library of the build: without the argument --bootstrap-preload uses the installed one.
add_preload_library() {
  local library=${plugin%/spank_plugin/*}/libbootstrap/libbootstrap.so.0
  [[ $plugin_arguments == *preload_library=* || ! -e $library ]] ||
    plugin_arguments+="${plugin_arguments:+ }preload_library=/run/slurm-bootstrap-tree/${library#"$repository"/}"
}

# Sets plugstack_lines and plugin_folder. The hosts see the repository at /run/slurm-bootstrap-tree and a plugin from
# elsewhere at /run/slurm-bootstrap-plugin, because the machine's /home, /tmp and /run are hidden there.
choose_plugin() {
  plugin_folder='' plugstack_lines='# no plugin'
  if [[ -n $plugstack_file ]]; then
    plugstack_lines=$(<"$plugstack_file") || fail "read $plugstack_file for --plugstack, which failed; name a readable file"
  elif [[ -n $plugin ]]; then
    [[ -r $plugin ]] ||
      fail "looked for the plugin $plugin, which is not there; build it (cmake --preset release && cmake --build --preset release) or say --no-plugin"
    plugin=$(readlink -f "$plugin")
    check_plugin_release
    if [[ $plugin == "$repository"/* ]]; then
      add_preload_library
      plugin=/run/slurm-bootstrap-tree/${plugin#"$repository"/}
    else
      plugin_folder=$(dirname "$plugin") plugin=/run/slurm-bootstrap-plugin/$(basename "$plugin")
    fi
    plugstack_lines="optional $plugin${plugin_arguments:+ $plugin_arguments}"
  fi
}

check_machine() {
  local tool missing=()
  require_root "cluster up"
  for tool in munged nsenter unshare setpriv ip flock; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  ((${#missing[@]} == 0)) || fail "looked for ${missing[*]}, not installed here; run scripts/setup"
}

# Chooses a character device number without a driver: a process that may open the device node gets ENXIO.
# The ranges for local use of the kernel's devices.txt; a driver may have taken one at run time.
choose_device_major() {
  local major
  for major in {240..254} {120..127} {60..63}; do
    if ! awk -v major="$major" '/^Block/ { exit } $1 == major { found = 1 } END { exit !found }' /proc/devices; then
      device_major=$major
      return
    fi
  done
  fail "looked for a free character device number for the GPUs' device nodes, all for local use are taken; say --gpus 0"
}

# Takes the lock on a fresh state folder, or refuses.
claim_state() {
  if [[ -d $cluster_state ]]; then
    if cluster_is_up || ! lock_state 3; then
      fail "cannot start cluster $cluster_name: it is already up; use it, or take it down first: scripts/cluster down --name $cluster_name"
    fi
    say "removing what an earlier cluster $cluster_name left"
    tear_down
    exec {state_lock}<&-
  fi
  # More than once, because the end of another cluster may remove the empty folder above.
  for _ in 1 2 3; do
    mkdir -p "$state_root"
    mkdir "$cluster_state" 2>/dev/null || continue
    lock_state 0 || break
    return
  done
  fail "cannot start cluster $cluster_name: somebody else starts it at this moment; wait for that"
}

give_up() {
  trap '' INT TERM HUP
  say "removing the half-started cluster $cluster_name"
  end_init
  tear_down
}

# Closes what the caller has open: a pipe that the caller reads to its end would not end before the cluster.
close_inherited() {
  local descriptor
  for descriptor in /proc/self/fd/*; do
    descriptor=${descriptor##*/}
    if ((descriptor > 2 && descriptor != state_lock)); then
      exec {descriptor}>&-
    fi
  done
}

# Init reads from a pipe that we alone hold open, and ends when we do (see init.sh).
start_init() {
  declare -p cluster_name node_count gpu_counts real_gpu_numbers cgroup_version device_major device_cgroup \
    plugin_folder repository slurm_prefix slurmd_variables names ip | sed 's/^declare -[-r]* /declare -- /' >"$cluster_state/settings"
  # A session of its own: Ctrl-C is for `up`, which then ends it.
  exec {start_pipe}> >(
    close_inherited
    # Daemons of a real node do not have the environment of a user's shell.
    exec env -i PATH="$PATH" setsid unshare --net --mount --uts --ipc --pid --fork --kill-child -- \
      "$repository/scripts/local_cluster/init.sh" "$cluster_state" "$state_lock" >"$cluster_state/log/init.log" 2>&1
  )
  init_job=$!
}

# Init may not have written its process id yet. Without the pipe init ends by itself, and kill_init is faster.
end_init() {
  local job=${init_job:-${!:-}}
  [[ -n ${start_pipe:-} ]] || return 0
  exec {start_pipe}>&-
  while kill -0 "$job" 2>/dev/null; do
    kill_init
    sleep 0.02
  done
}

# Fails after it has printed the last lines that the start itself wrote, and the last errors of the daemons.
fail_with_logs() {
  (
    cd "$cluster_state/log"
    for log in init.log host.*.log; do
      tail -n 3 "$log" | sed "s|^|$log: |"
    done
    for log in munged.*.log slurmctld.log slurmd.*.log; do
      { grep -E 'error:|fatal:|Error:' "$log" || true; } | tail -n 3 | sed "s|^|$log: |"
    done
  ) 2>/dev/null | sed 's|^|  |' >&2 || true
  fail "$@"
}

# All hosts may talk to all others, and the kernel has one limit for the neighbours of all network namespaces. Above it no new
# connection is made, and Slurm drains the nodes.
raise_neighbour_limit() {
  local limit=/proc/sys/net/ipv4/neigh/default/gc_thresh3 needed=$((2 * (node_count + 1) * (node_count + 1)))
  (($(<"$limit") >= needed)) || printf '%d\n' "$needed" >"$limit" ||
    fail "cannot raise net.ipv4.neigh.default.gc_thresh3 to $needed, which $node_count nodes need; raise it on the machine"
}

# The number of idle nodes; 0 while slurmctld does not answer. What runs meanwhile must not keep the pipe of init or
# the lock, should we be killed.
count_idle_nodes() {
  exec {start_pipe}>&- {state_lock}<&-
  ask_slurm sinfo -h -N -p main -t idle -o %T 2>/dev/null | grep -cx idle || true
}

wait_for_nodes() {
  # 256 nodes take 20 s on an idle machine.
  local limit=$((60 + node_count)) idle=0 failed
  local deadline=$((SECONDS + limit))
  while ((idle < node_count)); do
    failed=$(cd "$cluster_state/pids" && printf '%s ' *.failed)
    [[ $failed == '*.failed ' ]] ||
      fail_with_logs "started hosts of cluster $cluster_name, ${failed//.failed/}failed; the lines above are from their logs"
    kill -0 "$init_job" 2>/dev/null ||
      fail_with_logs "started cluster $cluster_name, its init process ended (killed, or not allowed to make namespaces); the lines above are from its logs"
    ((SECONDS <= deadline)) ||
      fail_with_logs "waited $limit s for $node_count nodes of cluster $cluster_name, $idle are idle; the lines above are from the logs"
    sleep 0.05
    [[ ! -e $cluster_state/listening ]] || idle=$(count_idle_nodes)
  done
}

run_up() {
  local word
  parse_up "$@"
  check_machine
  choose_slurm
  choose_cgroups
  choose_plugin
  choose_device_major
  claim_state
  trap give_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 141' PIPE
  raise_neighbour_limit
  say "starting $cluster_name: Slurm $slurm_version, $node_count nodes with $cpu_count CPUs; GPUs of each: ${gpu_counts// /, }"
  write_configuration
  start_init
  wait_for_nodes
  touch "$cluster_state/ready"
  printf 'ready\n' >&"$start_pipe"
  trap - EXIT HUP INT TERM PIPE
  say "all nodes are idle after $SECONDS s; plugstack: $plugstack_lines"
  word=''
  [[ $cluster_name == default ]] || word=" --name $cluster_name"
  printf 'Run a step:  scripts/cluster exec%s -- srun -N%d --ntasks-per-node 2 hostname\n' "$word" "$node_count"
  printf 'Look inside: scripts/cluster exec%s -- bash     (logs: %s)\n' "$word" "$cluster_state/log"
  printf 'Stop it:     scripts/cluster down%s\n' "$word"
}
