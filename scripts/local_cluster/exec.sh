# shellcheck shell=bash
# shellcheck disable=SC2154 # the sourcing script sets cluster_name and cluster_state
# Runs a command on a host of a cluster as one of its users, transparently: streams, exit status, signals.

readonly clean_path=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin

# PATH of all hosts, for daemons and users alike: with another prefix all of them run the commands of that Slurm.
path_of_hosts() {
  local prefix
  read -r prefix <"$cluster_state/slurm-prefix"
  [[ $prefix == /usr ]] || printf '%s:' "$prefix/bin" "$prefix/sbin"
  printf '%s' "$clean_path"
}

# Sets `enter` to the words that run a command on host $1 of the cluster; what follows are more options of nsenter. The
# root comes from the host's own process, so that hosts with another root folder work alike.
host_prefix() {
  local pid
  pid=$(host_pid "$1")
  [[ -n $pid && $1 =~ ^(head|node[0-9]+)$ ]] ||
    fail "looked for host $1 in cluster $cluster_name, which has none; hosts are: $(cd "$cluster_state/pids" && printf '%s ' head node*)"
  enter=(nsenter --target "$pid" --mount --uts --ipc --net --pid --root "${@:2}" --)
}

# Runs a command of Slurm's on the head.
ask_slurm() {
  local enter
  host_prefix head
  "${enter[@]}" env PATH="$(path_of_hosts)" SLURM_CONF="$cluster_state/etc/slurm.conf" "$@"
}

# True when Ctrl-C on our terminal would reach us: our process group is the terminal's foreground one (proc(5)).
in_foreground() {
  local stat fields
  read -r stat </proc/$$/stat
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[2]} == "${fields[5]}" ]]
}

# run_on_host HOST USER VARIABLES... -- COMMAND...; does not return.
run_on_host() {
  local host=$1 user=$2 enter passwd_entry uid gid home shell variables terminal=no
  shift 2
  host_prefix "$host" --no-fork
  passwd_entry=$(grep "^$user:" "$cluster_state/hosts/etc/passwd") ||
    fail "looked for user $user in cluster $cluster_name, who does not exist; use alice, bob or root"
  IFS=: read -r _ _ uid gid _ home shell <<<"$passwd_entry"
  variables=("HOME=$home" "USER=$user" "LOGNAME=$user" "SHELL=$shell" "TERM=${TERM:-dumb}"
    "PATH=$(path_of_hosts):$cluster_state/usr/bin" "SLURM_CONF=$cluster_state/etc/slurm.conf")
  in_foreground && terminal=yes
  exec "${enter[@]}" /run/slurm-bootstrap-tree/scripts/local_cluster/run-as-user.sh "$terminal" "$uid" "$gid" "$home" "${variables[@]}" "$@"
}
