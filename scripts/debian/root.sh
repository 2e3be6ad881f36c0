#!/usr/bin/env bash
# Another Debian beside that of this machine, for its Slurm: a root folder, made once, in which commands run.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=debian
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$(dirname "$here")")
readonly here repository
# shellcheck source=scripts/message.sh
source "$repository/scripts/message.sh"
# shellcheck source=scripts/local_cluster/state.sh
source "$repository/scripts/local_cluster/state.sh"
# shellcheck source=scripts/local_cluster/exec.sh
source "$repository/scripts/local_cluster/exec.sh"

readonly cache=/var/cache/slurm-bootstrap
# By the number of the release: its name in the mirror, and the release of its Slurm.
declare -rA suites=([13]=trixie [14]=forky) slurms=([13]=24.11 [14]=26.05)

usage() {
  cat <<'TEXT'
Usage: scripts/debian/root.sh RELEASE COMMAND
       scripts/debian/root.sh list

`list` prints each release that can be made, and the release of its Slurm.

RELEASE is 13, whose Slurm is 24.11, or 14, the coming one, whose Slurm was 26.05 in November 2026.

  make            make the root folder, or install what is missing in it: 2 GB, some minutes, once
  run COMMAND...  run a command in it as root, in the checkout (there: /srv/slurm-bootstrap); its build folders are in
                  build/debianRELEASE of the checkout. Its mounts, processes and clusters are gone when it ends.
  path            print the path of the root folder, which you may delete; exit 1 if there is none
TEXT
}

# The Debian mirror that apt-get of this machine uses.
mirror() {
  # shellcheck disable=SC2016 # apt-get fills it in
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p
}

# Holds the root folder for as long as this shell lives: any number of commands run in it, or one makes it.
# $1 is --shared or --exclusive.
hold_root() {
  mkdir -p "$cache"
  exec {root_lock}>>"$root.lock"
  flock "$1" --nonblock "$root_lock" || fail "another command is at work in $root; wait for its end"
}

# Cgroups of commands that were killed before they could remove them.
remove_stale_cgroups() {
  local hierarchy folder
  for hierarchy in "$@"; do
    for folder in "$hierarchy/$cgroup_prefix"debian[0-9]*-*; do
      [[ -d $folder && ! -e /proc/${folder##*-} ]] || continue
      cluster_name=${folder##*/"$cgroup_prefix"}
      remove_cgroups
    done
  done
}

# Runs $2... in root folder $1 and returns its exit status. Its mounts are in a namespace of its own, and every process
# in it ends with process 1, which ends with us, even if we are killed: the kernel removes all of it.
run_in() {
  local folder=$1 hierarchies hierarchy terminal=no
  shift
  ! in_foreground || terminal=yes
  hierarchies=("$(device_hierarchy v1)" "$(device_hierarchy v2)")
  remove_stale_cgroups "${hierarchies[@]}"
  # Process ids in there are small and not the machine's, so clusters named after them would share cgroups with others.
  cluster_name=$name-$$
  trap remove_cgroups EXIT
  for hierarchy in "${hierarchies[@]}"; do
    [[ -z $hierarchy ]] || mkdir "$hierarchy/$cgroup_prefix$cluster_name"
  done
  setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child -- \
    "$here/enter.sh" "$folder" "$repository" "$name" "${hierarchies[*]}" "$cgroup_prefix$cluster_name" "$terminal" "$@" {root_lock}<&-
}

# Runs scripts/setup, and passes the proxies on to it. The lists of a coming release are signed for a week only, and mirrors
# lag. Debian's PyTorch is built without libuv, but its torchrun asks for libuv, whatever USE_LIBUV is.
install_packages() {
  printf 'Acquire::Check-Valid-Until "false";\n' >"$1/etc/apt/apt.conf.d/90slurm-bootstrap"
  run_in "$1" env ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} scripts/setup --no-clang
  sed -i 's/multi_tenant=True,$/& use_libuv=False,/' "$1"/usr/lib/python3/dist-packages/torch/distributed/elastic/rendezvous/*.py
  sed -i 's/is_master=False,$/& use_libuv=False,/' "$1"/usr/lib/python3/dist-packages/torch/distributed/rendezvous.py
}

make_root() {
  local fresh=$root.new site
  require_root "$name make"
  hold_root --exclusive
  if [[ -d $root ]]; then
    install_packages "$root"
    return
  fi
  command -v debootstrap >/dev/null || fail "looked for debootstrap, which is not installed; run scripts/setup"
  site=$(mirror)
  [[ -n $site ]] || fail "asked apt-get for the Debian mirror of this machine, it names none; see /etc/apt/sources.list"
  say "making Debian $release in $root, from $site"
  rm -rf --one-file-system "$fresh"
  # debootstrap mounts, and when it is killed unmounts nothing; in a namespace of its own that does no harm.
  # The script named last: debootstrap of Debian 12 does not know all later releases, which are made like this one.
  unshare --mount -- debootstrap --variant=minbase --include=ca-certificates "${suites[$release]}" "$fresh" "$site" sid \
    >"$root.log" 2>&1 || {
    tail -n 5 "$root.log" >&2
    fail "debootstrap failed, its last lines are above; the log is $root.log"
  }
  install_packages "$fresh" || fail "scripts/setup failed in $fresh; repair what it names and run make again"
  rm -rf "$fresh"/var/cache/apt/archives/*.deb
  mv "$fresh" "$root"
  say "made $root"
}

run_command() {
  (($#)) || misused "run: no command"
  require_root "$name run"
  hold_root --shared
  [[ -d $root ]] || fail "looked for $root, which is not made; run: scripts/debian/root.sh $release make"
  run_in "$root" "$@"
}

main() {
  case ${1:-} in
    -h | --help | help) usage && return ;;
    list)
      for release in "${!suites[@]}"; do printf '%s %s\n' "$release" "${slurms[$release]}"; done | sort
      return
      ;;
    '') misused "no release" ;;
  esac
  [[ -n ${suites[$1]:-} ]] || misused "there is no Debian $1 to be made; known are $(printf '%s\n' "${!suites[@]}" | sort | xargs)"
  readonly release=$1 name=debian$1 root=$cache/debian$1
  local command=${2:-}
  shift $(($# > 1 ? 2 : 1))
  case $command in
    make) make_root ;;
    run) run_command "$@" ;;
    path) [[ -d $root ]] && printf '%s\n' "$root" ;;
    '') misused "no command" ;;
    *) misused "command $command is not known" ;;
  esac
}

# Nothing is read from this file after main, so that it may be replaced while a command runs.
main "$@"
exit
