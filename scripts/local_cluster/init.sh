#!/usr/bin/env bash
# Process 1 of a cluster: holds the PID namespace and the network that joins the hosts, and starts the hosts.
# Run by `cluster up` in new PID, network and mount namespaces: init.sh STATE LOCK <the pipe `up` holds open;
# LOCK is the inherited descriptor that keeps the state folder locked as long as this process lives.
set -euo pipefail

readonly cluster_state=$1 state_lock=$2
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# The process id outside: the machine's /proc is still the one we see.
read -r init_pid _ </proc/self/stat
printf '%s\n' "$init_pid" >"$cluster_state/pids/init.new"
mv "$cluster_state/pids/init.new" "$cluster_state/pids/init"
# shellcheck source=scripts/local_cluster/cgroup.sh
source "$here/cgroup.sh"
# shellcheck source=/dev/null
source "$cluster_state/settings"

start_hosts() {
  local host
  ip link set lo up
  # Off: the bridge would hold every new port back for 15 s to look for loops.
  ip link add fabric type bridge forward_delay 0 stp_state 0
  ip link set fabric up
  for host in head $(seq -f 'node%03g' 1 "${node_count:?}"); do
    # The hosts must not inherit the lock: it shows whether this process lives. A descriptor kept in a variable
    # can only be closed by `exec`.
    (
      exec {state_lock}<&-
      namespaces=(--net --mount --uts --ipc)
      if has_version_2 "$host"; then
        enter_cgroup "$host" || { touch "$cluster_state/pids/$host.failed" && exit 1; }
        namespaces+=(--cgroup)
      fi
      exec unshare "${namespaces[@]}" -- "$here/host.sh" "$cluster_state" "$host" "$init_pid"
    ) </dev/null >"$cluster_state/log/host.$host.log" 2>&1 &
  done
}

main() {
  local word never
  start_hosts
  # `up` writes one word when the cluster answers. If `up` dies before that, even by SIGKILL, the pipe ends, so this
  # process ends, and the kernel ends everything else.
  read -r word || exit 1
  [[ $word == ready ]] || exit 1
  # From here on only orphans are reaped, which bash does while it waits for a line that never comes.
  exec {never}<> <(:)
  while true; do
    read -r -u "$never" _ || true
  done
}

main
