# shellcheck shell=bash
# shellcheck disable=SC2154 # the sourcing script sets what is named below
# Writes the configuration of a cluster: Slurm's files, names and users of its hosts, the munge key.
# Reads repository, cluster_name, cluster_state, node_count, gpu_counts, real_gpu_numbers, gpu_env, cpu_count, socket_count,
# cgroup_version, plugstack_lines, overrides, slurm_prefix, names, ip.

# Addresses exist in the cluster's own network namespaces only, so they cannot clash with the machine's.
node_address() {
  local format=10.20.%d.%d
  ((ip == 4)) || format=fd20::%d:%d
  # shellcheck disable=SC2059 # one of the two above
  printf "$format" $((1 + ($1 - 1) / 250)) $((1 + ($1 - 1) % 250))
}

head_address() {
  ((ip == 4)) && printf 10.20.0.1 || printf fd20::1
}

node_names() {
  seq -f 'node%03g' 1 "$node_count"
}

# The host's own name. If no name service knows the nodes, it differs from the name of the node.
host_name() {
  [[ ${names:?} == hosts ]] && printf '%s' "$1" || printf '%s' "${1/node/host}"
}

# Neighbouring nodes with equally many GPUs, one line each: their names as a host list, and how many GPUs. A node that
# has its address in slurm.conf has a line of its own.
gpu_groups() {
  local counts node first=1
  read -ra counts <<<"$gpu_counts"
  for ((node = 1; node <= node_count; node++)); do
    ((node == node_count || counts[node] != counts[node - 1])) || [[ ${names:?} != hosts ]] || continue
    printf 'node[%03d-%03d] %d\n' "$first" "$node" "${counts[node - 1]}"
    first=$((node + 1))
  done
}

# What gres.conf calls the device nodes of a node with $1 GPUs.
gpu_files() {
  if [[ -n $real_gpu_numbers ]]; then
    printf '/dev/nvidia[%s]' "${real_gpu_numbers// /,}"
    return
  fi
  (($1 == 1)) && printf '/dev/nvidia0' || printf '/dev/nvidia[0-%d]' $(($1 - 1))
}

write_slurm_conf() {
  # Not task/affinity: where a node has more CPUs than the machine, it may refuse a step whose tasks it cannot bind.
  local task_plugin=task/none setting
  [[ -n $cgroup_version ]] && task_plugin=task/cgroup
  cat >"$cluster_state/etc/slurm.conf" <<TEXT
# Written by scripts/cluster up; gone with scripts/cluster down.
ClusterName=$cluster_name
SlurmctldHost=head
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
# A requeued job may not start again before its old credential has expired: 10 s instead of 120 s.
AuthInfo=cred_expire=10
StateSaveLocation=$cluster_state/spool/slurmctld
SlurmdSpoolDir=$cluster_state/spool/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=$cluster_state/log/slurmctld.log
SlurmdLogFile=$cluster_state/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
PlugStackConfig=$cluster_state/etc/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=$task_plugin
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# More CPUs than the machine has are fine.
SlurmdParameters=config_overrides
GresTypes=gpu
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
KillWait=5
SchedulerType=sched/backfill
# Heterogeneous jobs are started by the backfill scheduler only: let it look every second, not every 30. And a requeued
# job becomes eligible after 11 s, and no other event makes slurmctld look at the queue.
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0,sched_interval=1
TEXT
  ((ip == 4)) || printf 'CommunicationParameters=EnableIPv6,DisableIPv4\n' >>"$cluster_state/etc/slurm.conf"
  # A setting named twice would be an error or a matter of order, so the user's line replaces ours.
  for setting in "${overrides[@]}"; do
    sed -i "/^${setting%%=*}=/Id" "$cluster_state/etc/slurm.conf"
    printf '%s\n' "$setting" >>"$cluster_state/etc/slurm.conf"
  done
  write_nodes >>"$cluster_state/etc/slurm.conf"
}

write_nodes() {
  local nodes gpus node
  while read -r nodes gpus; do
    printf 'NodeName=%s CPUs=%d Boards=1 SocketsPerBoard=%d CoresPerSocket=%d ThreadsPerCore=1 RealMemory=65536' \
      "$nodes" "$cpu_count" "$socket_count" $((cpu_count / socket_count))
    ((gpus)) && printf ' Gres=gpu:%d' "$gpus"
    node=${nodes:5:3}
    [[ $names == hosts ]] || printf ' NodeHostname=%s NodeAddr=%s' "$(host_name "node$node")" "$(node_address $((10#$node)))"
    printf ' State=UNKNOWN\n'
  done < <(gpu_groups)
  printf 'PartitionName=main Nodes=node[001-%03d] Default=YES MaxTime=INFINITE State=UP\n' "$node_count"
  printf 'PartitionName=debug Nodes=node[001-%03d] MaxTime=60 State=UP\n' "$node_count"
}

write_gres_conf() {
  local nodes gpus flags=''
  [[ $gpu_env == all ]] || flags=" Flags=${gpu_env}_gpu_env"
  while read -r nodes gpus; do
    ((gpus == 0)) || printf 'NodeName=%s Name=gpu File=%s%s\n' "$nodes" "$(gpu_files "$gpus")" "$flags"
  done < <(gpu_groups) >"$cluster_state/etc/gres.conf"
}

# Without it a fence without data is no barrier between nodes (etc/doc/pmix-facts.md). Open MPI ends MPI_Init by such a
# fence, and a rank crashes if a message reaches it while it is still in MPI_Init.
write_mpi_conf() {
  printf 'PMIxCollFence=ring\n' >"$cluster_state/etc/mpi.conf"
}

# Nothing listens on the port of the name server here, and the look-up fails at once.
write_name_services() {
  local services=files
  [[ $names != hosts ]] || return 0
  [[ $names != again ]] || services='files dns'
  sed -i "s/^hosts:.*/hosts: $services/" "$1/nsswitch.conf"
  rm -f "$1/resolv.conf"
  printf 'nameserver 127.0.0.1\n' >"$1/resolv.conf"
}

# /etc of the hosts. A mount over one file would be gone once the machine's file is replaced, as useradd does. Without hidden
# files: etckeeper's history may be large.
write_host_files() {
  local folder=$cluster_state/hosts/etc i=0 name
  mkdir "$folder"
  cp -a --one-file-system /etc/* "$folder/"
  rm -f "$folder"/{hosts,hostname,passwd,shadow,group} # a link would lead to the machine's
  : >"$folder/hostname"
  {
    printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n%s head\n' "$(head_address)"
    while [[ $names == hosts ]] && read -r name; do
      i=$((i + 1))
      printf '%s %s\n' "$(node_address "$i")" "$name"
    done < <(node_names)
  } >"$folder/hosts"
  write_name_services "$folder"
  awk -F: '$1 != "alice" && $1 != "bob" && $3 != 10001 && $3 != 10002' /etc/passwd >"$folder/passwd"
  awk -F: '$1 != "alice" && $1 != "bob" && $1 != "lab" && ($3 < 10000 || $3 > 10002)' /etc/group >"$folder/group"
  printf '%s:x:%d:%d::/home/%s:/bin/bash\n' alice 10001 10001 alice bob 10002 10002 bob >>"$folder/passwd"
  # No passwords; but without a line `su` refuses a user, and by `su` slurmd finds the environment for --export=NONE.
  (umask 077 && awk -F: '{ print $1 ":*:20000:0:99999:7:::" }' "$folder/passwd" >"$folder/shadow")
  # A second group, as most users of a real cluster have one.
  printf 'alice:x:10001:\nbob:x:10002:\nlab:x:10000:alice,bob\n' >>"$folder/group"
  { printf 'head\n' && node_names; } | while read -r name; do
    host_name "$name" >"$cluster_state/hosts/hostname.$name"
  done
}

write_homes() {
  local user
  for user in alice:10001 bob:10002; do
    install -d -m 700 "$cluster_state/home/${user%:*}"
    ln -s /run/slurm-bootstrap-tree/etc/examples "$cluster_state/home/${user%:*}/examples"
    chown -hR "${user#*:}:${user#*:}" "$cluster_state/home/${user%:*}"
  done
}

# The command and the man pages as an installation has them below /usr; `cluster exec` has them in PATH, by which man, too,
# finds its pages. The command is there once it is built.
write_command() {
  local folder=$cluster_state/usr page
  mkdir -p "$folder/bin" "$folder"/share/man/man{1,3,7,8}
  ln -s /run/slurm-bootstrap-tree/build/release/libbootstrap/slurm-bootstrap "$folder/bin/"
  for page in "$repository"/etc/man/*; do
    ln -s "/run/slurm-bootstrap-tree/etc/man/${page##*/}" "$folder/share/man/man${page##*.}/"
  done
}

# The daemons run as these users and create neither key nor log in folders that root owns.
write_daemon_files() {
  local name
  install -d -m 700 -o munge -g munge "$cluster_state/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$cluster_state/munge/key")
  chown munge:munge "$cluster_state/munge/key"
  install -d -m 700 -o slurm -g slurm "$cluster_state/spool/slurmctld"
  install -m 644 -o slurm -g slurm /dev/null "$cluster_state/log/slurmctld.log"
  { printf 'head\n' && node_names; } | while read -r name; do
    install -m 640 -o munge -g munge /dev/null "$cluster_state/log/munged.$name.log"
    install -d "$cluster_state/spool/$name" "$cluster_state/hosts/$name"
  done
}

write_configuration() {
  install -d -m 755 "$cluster_state"/{etc,log,spool,hosts,home,pids}
  printf '%s\n' "$slurm_prefix" >"$cluster_state/slurm-prefix"
  write_slurm_conf
  write_gres_conf
  write_cgroup_conf
  write_mpi_conf
  printf '%s\n' "$plugstack_lines" >"$cluster_state/etc/plugstack.conf"
  write_host_files
  write_homes
  write_command
  write_daemon_files
}
