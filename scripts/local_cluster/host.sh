#!/usr/bin/env bash
# One host of a cluster: its network, mounts, names, device nodes and daemons, then waits for its end.
# Run by init.sh in new network, mount, UTS and IPC namespaces: host.sh STATE HOST INIT_PID.
set -euo pipefail

readonly cluster_state=$1 host=$2 init_pid=$3
program=$host
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/message.sh
source "$here/../message.sh"
# shellcheck source=scripts/local_cluster/configuration.sh
source "$here/configuration.sh"
# shellcheck source=scripts/local_cluster/cgroup.sh
source "$here/cgroup.sh"
# shellcheck source=scripts/local_cluster/exec.sh
source "$here/exec.sh"
# shellcheck source=/dev/null
source "$cluster_state/settings"

read -r host_pid _ </proc/self/stat
printf '%s\n' "$host_pid" >"$cluster_state/pids/$host"

# `up` waits for one of the two files.
trap 'touch "$cluster_state/pids/$host.failed"' EXIT

join_network() {
  local address nodad=''
  address=$(head_address)
  [[ $host == head ]] || address=$(node_address $((10#${host#node})))
  ((ip == 4)) || nodad=' nodad' # the address is usable at once
  # Names the namespace by its file: iproute2 up to Debian 12 takes a bare process id for one of our own namespace, and
  # from 6.15 on for one of /proc, which is still the machine's.
  ip link add eth0 type veth peer name "$host" netns "/proc/$init_pid/ns/net"
  nsenter --target "$init_pid" --net -- ip link set "$host" master fabric up
  ip -batch - <<TEXT
link set lo up
address add $address/$((ip == 6 ? 64 : 16)) dev eth0${nodad}
link set eth0 up
TEXT
}

# Folder $1 of the machine at $2, to be read only.
show_folder() {
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
}

# A private /dev: the machine's is never touched, and a real /dev/nvidia0 is visible here with --gpus real only.
make_devices() {
  local dev=$1 entry name major minor gpus i
  for entry in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 ptmx:5:2; do
    IFS=: read -r name major minor <<<"$entry"
    mknod -m 666 "$dev/$name" c "$major" "$minor"
  done
  # The machine's terminals, so that `cluster exec` from a terminal is on that terminal.
  mkdir "$dev"/{pts,shm,mqueue} && mount --rbind /dev/pts "$dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev shm "$dev/shm"
  mount -t mqueue mqueue "$dev/mqueue"
  ln -s /proc/self/fd "$dev/fd"
  ln -s fd/0 "$dev/stdin" && ln -s fd/1 "$dev/stdout" && ln -s fd/2 "$dev/stderr"
  [[ $host == head ]] && return
  if [[ -n ${real_gpu_numbers?} ]]; then
    cp -a /dev/nvidia* "$dev/"
    return
  fi
  read -ra gpus <<<"${gpu_counts:?}"
  for ((i = 0; i < gpus[10#${host#node} - 1]; i++)); do
    mknod -m 666 "$dev/nvidia$i" c "${device_major:?}" "$i"
  done
}

# Programs that look in the machine's usual places find this Slurm, too: a step of `srun --export=NIL`, which has no PATH, the
# login shell of `sbatch --export=NONE`, and a program that opens libpmi.
cover_other_slurm() {
  local prefix=$1 name other
  [[ $prefix != /usr ]] || return 0
  for name in bin/{sacct,sacctmgr,salloc,sattach,sbatch,sbcast,scancel,scontrol,sdiag,sinfo,sprio,squeue,srun,sstat} \
    sbin/{slurmctld,slurmd} lib/libpmi.so.0; do
    for other in /usr/{bin,sbin,lib/*}/"${name##*/}"; do
      [[ ! -f $prefix/$name || ! -f $other ]] || mount --bind "$prefix/$name" "$other"
    done
  done
}

# Slurm stays where it was configured for, also below a folder that the host covers.
show_slurm() {
  local stage=$1 prefix=${slurm_prefix:?} place
  case $prefix in
    /home/* | /run/* | /tmp/*) place=$stage$prefix ;;
    /var/tmp/*) place=$stage/vartmp${prefix#/var/tmp} ;;
    *) place=$prefix ;;
  esac
  if [[ ! -d $place/sbin ]]; then
    mkdir -p "$place"
    show_folder "$prefix" "$place"
  fi
  # Its commands look here if they have lost SLURM_CONF.
  [[ ! -d $place/etc ]] || mount --bind "$cluster_state/etc" "$place/etc"
  cover_other_slurm "$prefix"
}

make_mounts() {
  local stage=$cluster_state/hosts/$host real_cgroup=''
  if [[ ${cgroup_version?} == v1 && $host != head ]]; then
    # Kept reachable through the stage: a new /sys hides the cgroups mounted below the old one.
    mkdir -p "${device_cgroup:?}/$host"
    real_cgroup=$stage/cgroup
  fi
  mount -t tmpfs -o mode=755,nosuid stage "$stage"
  mkdir "$stage"/{run,tmp,vartmp,home,dev,cgroup}
  [[ -z $real_cgroup ]] || mount --bind "$device_cgroup/$host" "$real_cgroup"
  mkdir -p "$stage"/run/slurm-bootstrap{-tree,-plugin,"/$cluster_name"}
  show_folder "${repository:?}" "$stage/run/slurm-bootstrap-tree"
  # build/ may be a mount of its own (debian/root.sh), which the bind mount of the repository does not include.
  [[ ! -d $repository/build ]] || show_folder "$repository/build" "$stage/run/slurm-bootstrap-tree/build"
  [[ -z ${plugin_folder:-} ]] || show_folder "$plugin_folder" "$stage/run/slurm-bootstrap-plugin"
  mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$stage/tmp"
  mount -t tmpfs -o mode=1777,nosuid,nodev tmp "$stage/vartmp"
  mount --bind "$cluster_state/home" "$stage/home"
  install -d -o munge -g munge "$stage/run/munge"
  install -d -o slurm -g slurm "$stage/run/slurm"
  install -d -m 1777 "$stage/run/lock"
  show_slurm "$stage"
  make_devices "$stage/dev"
  mount --bind "$cluster_state/hosts/etc" /etc
  mount --bind "$cluster_state/hosts/hostname.$host" /etc/hostname
  # Commands that lose SLURM_CONF still find the configuration of this cluster, and never the machine's.
  [[ ! -d /etc/slurm ]] || mount --bind "$cluster_state/etc" /etc/slurm
  # A sysfs of this network namespace: /sys/class/net is read by communication libraries.
  mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
  [[ -z $real_cgroup ]] || show_hierarchy_1 "$real_cgroup"
  ! has_version_2 "$host" || show_hierarchy_2
  cover_folders "$stage"
}

# Last: from here on the paths of the machine are hidden.
cover_folders() {
  mount --bind "$cluster_state" "$1/run/slurm-bootstrap/$cluster_name"
  mount -t proc -o nosuid,nodev,noexec proc /proc
  ! has_version_2 "$host" || show_process_1 "$1"
  mount --rbind "$1/home" /home
  mount --rbind "$1/vartmp" /var/tmp
  mount --rbind "$1/dev" /dev
  mount --rbind "$1/tmp" /tmp
  mount --rbind "$1/run" /run
}

# Without a controller slurmd tries again only after seconds, and from Slurm 23.11 on also `sinfo`, after ten.
wait_for_controller() {
  local deadline=$((SECONDS + 10))
  until (: </dev/tcp/head/6817) 2>/dev/null || ((SECONDS > deadline)); do
    sleep 0.05
  done
}

start_daemons() {
  local munge=$cluster_state/munge
  export SLURM_CONF=$cluster_state/etc/slurm.conf PATH
  PATH=$(path_of_hosts)
  setpriv --reuid munge --regid munge --init-groups -- munged --key-file="$munge/key" --num-threads=2 \
    --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid \
    --log-file="$cluster_state/log/munged.$host.log" --seed-file="/run/munge/seed"
  if [[ $host == head ]]; then
    slurmctld -f "$SLURM_CONF"
    wait_for_controller
    : >"$cluster_state/listening"
    return
  fi
  wait_for_controller
  # shellcheck disable=SC2154 # the settings have it
  env "${slurmd_variables[@]}" slurmd -f "$SLURM_CONF"
}

main() {
  hostname "$(host_name "$host")"
  join_network
  make_mounts
  cd /
  start_daemons
  trap - EXIT
  exec sleep infinity
}

main
