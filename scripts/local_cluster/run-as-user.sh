#!/usr/bin/env bash
# Runs one command as a user and passes signals and its exit status on. `cluster exec` enters a host and becomes this:
# run-as-user.sh TERMINAL(yes|no) UID GID FOLDER VARIABLES... -- COMMAND...
#
# It is entered with `nsenter --no-fork`: this shell stays in the machine's PID namespace and only its children are
# in the cluster's, so that the shell itself is the parent of the command. The parent that nsenter would leave dies of
# Ctrl-C before the command does, or, when made to ignore it, loses the exit status.
#
# The command ends with this shell, even when that is killed. srun ends its step on any signal but SIGKILL, and that is
# what `timeout -s KILL` sends to its whole process group. So the command has a group of its own, except where it reads
# from a terminal whose foreground group is ours.
set -euo pipefail

readonly terminal=$1 uid=$2 gid=$3 folder=$4
shift 4
variables=()
while [[ $1 != -- ]]; do
  variables+=("$1")
  shift
done
shift

# shellcheck disable=SC2317 # called by traps
pass_on() {
  early=$1
  [[ -z $child ]] || kill -"$1" -- "$receiver" 2>/dev/null || true
  # A command that reads from the terminal in the background is stopped, and would not notice.
  [[ $receiver != -* || ! $1 =~ ^(HUP|TERM)$ ]] || kill -CONT -- "$receiver" 2>/dev/null || true
}

# A background command would ignore SIGINT and SIGQUIT and read nothing, hence --default-signal and <&0.
# env is entered with an environment of its own; setpriv leaves no capability when the uid changes. SIGHUP at our death,
# since an interactive shell ignores SIGTERM. `set -m` gives the command its group.
start_command() {
  [[ $terminal == yes ]] || set -m
  env --ignore-environment --default-signal=INT,QUIT --chdir="$folder" "${variables[@]}" \
    setpriv --reuid "$uid" --regid "$gid" --init-groups --pdeathsig HUP -- "$@" <&0 &
  child=$! receiver=$!
  [[ $terminal == yes ]] || receiver=-$child
  set +m
}

set_traps() {
  local name
  for name in HUP TERM USR1 USR2 INT QUIT; do
    if [[ $terminal == yes && $name =~ ^(INT|QUIT)$ ]]; then
      # Ctrl-C and Ctrl-\ on a terminal reach the command without us, and twice means something else to srun.
      trap : "$name"
    else
      # shellcheck disable=SC2064 # the name of now
      trap "pass_on $name" "$name"
    fi
  done
}

# In one function, so that nothing is read from this file while the command runs: it may be replaced meanwhile.
main() {
  local child='' receiver='' early=''
  set_traps
  start_command "$@"
  [[ -z $early ]] || pass_on "$early"
  # A trapped signal ends `wait`, not the command: only once that is gone is the status its own.
  while kill -0 "$child" 2>/dev/null; do
    wait "$child" || true
  done
  wait "$child"
}

main "$@"
