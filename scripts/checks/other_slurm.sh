#!/usr/bin/env bash
# The checks of another Slurm: builds for it, runs the integration tests on clusters of it, and keeps its column of the
# table of versions. The other Slurm is another Debian's (debian/root.sh), or is installed below a prefix.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=other-slurm
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$(dirname "$here")")
readonly here repository
# shellcheck source=scripts/message.sh
source "$repository/scripts/message.sh"
cd "$repository"

# Files of tests/integration: what depends on the release of Slurm, PMIx, PyTorch or Open MPI, and not what measures time,
# forecasts, or needs no cluster.
readonly tests=(
  activation/{activation,addresses,newer_slurm,option_abuse,options,refusals,slurm_partitions,unchanged_environment,unknown_names}
  command/{check,explain,explain_in_task,where}
  exchange/{exchange{,_daemons,_faults,_pmi1},communicators}
  failures/{first_failure,plugin_faults,supervise} frameworks/{framework_variables,examples,train} gpus/{gpus,near_gpus}
  layouts/{layouts,heterogeneous_steps} load/{load,ends_at_random} mpirun/mpirun ports/ports
  preload/{preload,preload_other_processes} scripts/{cluster,cluster_cgroups,cluster_slurm,packages}
  security/{malformed_environment,other_users,rogue_peers,root_system_calls,secret,writable_files}
)

usage() {
  cat <<'TEXT'
Usage: scripts/checks/other_slurm.sh DEBIAN|PREFIX [PYTEST ARGUMENTS]

Builds the project for another Slurm with warnings as errors, and runs the integration tests on clusters of it, as root.
DEBIAN is 13 or 14: the Slurm of that Debian, in a root folder that is made where it is not. PREFIX is the folder that a Slurm
was configured with and installed below, such as /opt/slurm-25.11.
Results are in build/debianDEBIAN or build/slurm-RELEASE, the table of versions is in build/report.
TEXT
}

# Sets what differs: `there` runs a command where the other Slurm is the one in PATH, and where build/ is `results`.
choose_debian() {
  release=$1 part="debian $1" results=build/debian$1
  scripts/debian/root.sh "$release" make
  there() { scripts/debian/root.sh "$release" run "$@"; }
}

choose_prefix() {
  local said
  prefix=$(readlink -f "$1") || prefix=$1
  [[ -x $prefix/sbin/slurmd ]] ||
    fail "looked for sbin/slurmd below $1, which has none; name the prefix that Slurm was configured with"
  said=$("$prefix/sbin/slurmd" -V) || fail "cannot ask $prefix/sbin/slurmd for its version: it does not start"
  said=${said##* }
  part="slurm ${said%.*}" results=build/slurm-${said%.*}
  # shellcheck disable=SC2016 # the inner shell fills it in
  there() {
    unshare --mount -- env SLURM_ROOT="$prefix" PATH="$prefix/bin:$prefix/sbin:$PATH" PYTHONDONTWRITEBYTECODE=1 \
      bash -c 'mount --bind "$0" build && exec "$@"' "$results" "$@"
  }
}

build() {
  local log=$results/release.log
  mkdir -p "$results"
  there bash -c 'cmake --preset release -DCMAKE_COMPILE_WARNING_AS_ERROR=ON && cmake --build --preset release' >"$log" 2>&1 || {
    grep -E 'error|warning|FAILED' "$log" || tail -n 20 "$log"
    fail "building for $part failed, the lines above say where; all of it is in $log"
  }
  there scripts/checks/binaries.py build/release
}

run_tests() {
  local files=("${tests[@]/\///test_}") status=0
  files=("${files[@]/%/.py}")
  rm -f "$results/integration.xml"
  there /usr/bin/python3 -m pytest -p no:cacheprovider -q --junit-xml=build/integration.xml "$@" \
    "${files[@]/#/tests/integration/}" || status=$?
  # The table of versions needs a run of all tests to the end: status 0, or 1 if tests failed.
  if (($# == 0 && status <= 1)); then
    there scripts/test_report/report.py versions "$part" build/integration.xml
    mkdir -p build/report
    cp "$results/report/m9-${part// /-}.json" build/report/
  fi
  return "$status"
}

main() {
  case ${1:-} in
    -h | --help) usage && exit ;;
    '') misused "no Slurm" ;;
    */*) choose_prefix "$1" ;;
    *) choose_debian "$1" ;;
  esac
  shift
  require_root "other-slurm"
  build
  run_tests "$@"
}

main "$@"
exit
