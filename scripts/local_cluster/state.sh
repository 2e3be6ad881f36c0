# shellcheck shell=bash
# Where a cluster keeps its state, who holds it, and how everything of it is removed again.
#
# A cluster is one process tree below an init process with a PID namespace of its own. That init (or an `up` still at
# work) holds the lock on the state folder. A process id from the folder is used only while a process has the lock, so
# that a stale file cannot end an unrelated process.

# shellcheck source=scripts/local_cluster/cgroup.sh
source "${repository:?}/scripts/local_cluster/cgroup.sh"

readonly state_root=/run/slurm-bootstrap

# Sets cluster_name and cluster_state.
select_cluster() {
  [[ $1 =~ ^[a-z0-9][a-z0-9-]{0,31}$ ]] ||
    misused "cluster name '$1' is not usable, a name has lower-case letters, digits and '-', 32 at most"
  cluster_name=$1
  cluster_state=$state_root/$1
}

# Locks the state folder, waiting at most $1 seconds, and leaves the descriptor in state_lock. Fails when another
# process holds the lock or the folder is gone (also when it was removed during the wait).
lock_state() {
  [[ -d $cluster_state ]] || return 1
  { exec {state_lock}<"$cluster_state"; } 2>/dev/null || return 1
  if flock --wait "$1" "$state_lock" && [[ $cluster_state -ef /proc/self/fd/$state_lock ]]; then
    return 0
  fi
  exec {state_lock}<&-
  return 1
}

# True when an init or an `up` holds the state folder.
state_is_held() {
  [[ -d $cluster_state ]] && ! flock --nonblock "$cluster_state" true
}

cluster_is_up() {
  [[ -e $cluster_state/ready ]] && state_is_held
}

require_up() {
  cluster_is_up || fail "looked for cluster $cluster_name, which is not up; start it with: scripts/cluster up --name $cluster_name"
}

# Host process id of host $1 of the cluster (init, head, node001, ...).
host_pid() {
  local pid=
  { read -r pid <"$cluster_state/pids/$1"; } 2>/dev/null || true
  printf '%s' "$pid"
}

# Killing init ends every process in its PID namespace, and with the last process of a namespace the kernel drops
# its mounts, bridge and veth pairs. Init is gone only after all the others are.
kill_init() {
  local pid
  pid=$(host_pid init)
  [[ -n $pid ]] || return 0
  kill -KILL "$pid" 2>/dev/null || return 0
  while [[ -e /proc/$pid ]] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do
    sleep 0.02
  done
}

# Removes what is left of the selected cluster, in any state it may be in. The caller holds the lock, or init does.
tear_down() {
  kill_init
  remove_cgroups
  rm -rf --one-file-system "$cluster_state"
  rmdir "$state_root" 2>/dev/null || true
}

# `down`: waits for an `up` at work to notice that its init is gone, so that two cleanups do not meet.
bring_down() {
  if [[ ! -d $cluster_state ]]; then
    # Cgroups are looked at too: somebody may have removed the state folder by hand.
    remove_cgroups
    say "no cluster $cluster_name here, nothing to do"
    return 0
  fi
  local deadline=$((SECONDS + 20))
  until lock_state 0.2; do
    [[ -d $cluster_state ]] || return 0
    ((SECONDS < deadline)) ||
      fail "cannot take down cluster $cluster_name: a process still holds $cluster_state after 20 s; \`fuser $cluster_state\` names it"
    kill_init
  done
  tear_down
  exec {state_lock}<&-
}
