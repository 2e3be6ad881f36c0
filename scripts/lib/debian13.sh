#!/usr/bin/env bash
# A Debian 13 beside the Debian 12 of this machine, for its Slurm 24.11: a root folder, made once, in which commands run.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=debian13
library=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$(dirname "$library")")
readonly library repository
# shellcheck source=scripts/lib/message.sh
source "$library/message.sh"
# shellcheck source=scripts/lib/cluster-state.sh
source "$library/cluster-state.sh"
# shellcheck source=scripts/lib/cluster-exec.sh
source "$library/cluster-exec.sh"

readonly cache=/var/cache/slurm-bootstrap
readonly root=$cache/debian13

usage() {
  cat <<'TEXT'
Usage: scripts/lib/debian13.sh COMMAND

  make            make the root folder, or install in it what it has not: 2 GB, some minutes, once
  run COMMAND...  run a command in it as root, in the checkout (there: /srv/slurm-bootstrap); its build folders are in
                  build/debian13 of the checkout. Its mounts, processes and clusters are gone when it ends.
  path            print where the root folder is; exit 1 when it is not made
  remove          remove it
TEXT
}

# The Debian mirror that apt-get of this machine uses.
mirror() {
  # shellcheck disable=SC2016 # apt-get fills it in
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p
}

# Holds the root folder for as long as this shell lives: any number of commands run in it, or one makes or removes it.
# $1 is --shared or --exclusive.
hold_root() {
  mkdir -p "$cache"
  exec {root_lock}<"$cache"
  flock "$1" --nonblock "$root_lock" || fail "another command of debian13 is at work in $cache; wait for its end"
}

# Cgroups of commands that were killed before they could remove them.
remove_stale_cgroups() {
  local folder
  for folder in "$1/$cgroup_prefix"debian13-*; do
    [[ -d $folder && ! -e /proc/${folder##*-} ]] || continue
    cluster_name=${folder##*/"$cgroup_prefix"}
    remove_cgroups
  done
}

# Runs $2... in root folder $1 and returns its exit status. Its mounts are in a namespace of its own, and every process
# in it ends with process 1, which ends with us, even if we are killed: the kernel removes all of it.
run_in() {
  local folder=$1 devices cgroup='' terminal=no status=0
  shift
  ! in_foreground || terminal=yes
  devices=$(devices_controller)
  if [[ -n $devices ]]; then
    remove_stale_cgroups "$devices"
    # Process ids in there are small and not the machine's, so that clusters named after them would meet others' cgroups.
    cluster_name=debian13-$$
    cgroup=$devices/$cgroup_prefix$cluster_name
    mkdir "$cgroup"
    trap remove_cgroups EXIT
  fi
  setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child -- \
    "$library/debian13-enter.sh" "$folder" "$repository" "$devices" "$cgroup" "$terminal" "$@" {root_lock}<&- || status=$?
  return "$status"
}

# The packages of scripts/setup, for which the names of proxies are passed on.
install_packages() {
  run_in "$1" env ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
    scripts/setup --no-clang
}

make_root() {
  local fresh=$root.new site
  require_root "debian13 make"
  hold_root --exclusive
  if [[ -d $root ]]; then
    install_packages "$root"
    return
  fi
  command -v debootstrap >/dev/null || fail "looked for debootstrap, which is not installed; run scripts/setup"
  site=$(mirror)
  [[ -n $site ]] || fail "asked apt-get for the Debian mirror of this machine, it names none; see /etc/apt/sources.list"
  say "making Debian 13 in $root, from $site"
  rm -rf --one-file-system "$fresh"
  # debootstrap mounts, and when it is killed unmounts nothing; in a namespace of its own that is nobody's loss.
  unshare --mount -- debootstrap --variant=minbase --include=ca-certificates trixie "$fresh" "$site" \
    >"$cache/debootstrap.log" 2>&1 || {
    tail -n 5 "$cache/debootstrap.log" >&2
    fail "debootstrap failed, its last lines are above; the log is $cache/debootstrap.log"
  }
  install_packages "$fresh" || fail "scripts/setup failed in $fresh; repair what it names and run make again"
  rm -rf "$fresh"/var/cache/apt/archives/*.deb
  mv "$fresh" "$root"
  say "made $root"
}

remove_root() {
  require_root "debian13 remove"
  hold_root --exclusive
  rm -rf --one-file-system "$root" "$root.new" "$cache/debootstrap.log"
  say "removed $root"
}

run_command() {
  (($#)) || misused "run: no command"
  require_root "debian13 run"
  hold_root --shared
  [[ -d $root ]] || fail "looked for $root, which is not made; run: scripts/lib/debian13.sh make"
  run_in "$root" "$@"
}

main() {
  local command=${1:-}
  shift || true
  case $command in
    make) make_root ;;
    run) run_command "$@" ;;
    path)
      [[ -d $root ]] || exit 1
      printf '%s\n' "$root"
      ;;
    remove) remove_root ;;
    -h | --help | help) usage ;;
    '') misused "no command" ;;
    *) misused "command $command is not known" ;;
  esac
}

# Nothing is read from this file after main, so that it may be replaced while a command runs.
main "$@"
exit
