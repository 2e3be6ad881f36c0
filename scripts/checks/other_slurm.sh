#!/usr/bin/env bash
# The checks of another Slurm: builds in the Debian that has it (root.sh), runs the integration tests on clusters of its
# Slurm, and keeps its column of the table of versions.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=debian-check
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$(dirname "$here")")
readonly here repository
# shellcheck source=scripts/message.sh
source "$repository/scripts/message.sh"
cd "$repository"

# Files of tests/integration: what depends on the release of Slurm, PMIx, PyTorch or Open MPI, and not what measures time,
# forecasts, or needs no cluster.
readonly tests=(
  activation/{options,option_abuse,slurm_partitions,refusals,step_isolation,unchanged_environment} command/{check,explain}
  exchange/{exchange{,_daemons,_faults,_pmi1,_presence,_refusals,_rounds,_side_effects},lost_messages,network_cut,communicators}
  failures/{first_failure,plugin_faults} frameworks/{frameworks,examples,train} gpus/{gpus,gpu_shapes,near_gpus}
  layouts/{layouts,mpi_layouts,components} load/{load,ends_at_random} mpirun/mpirun ports/{ports,port_conflicts}
  preload/{preload,preload_nccl,preload_other_processes} scripts/{cluster,cluster_cgroups}
  security/{malformed_environment,other_users,rogue_peers,root_system_calls,secret,writable_files}
)

usage() {
  cat <<'TEXT'
Usage: scripts/debian/check.sh RELEASE [PYTEST ARGUMENTS]

Makes the root folder of that Debian (13 or 14) where it is not made, builds the project in it with warnings as errors, and
runs the integration tests there, as root. Results are in build/debianRELEASE, the table of versions is in build/report.
TEXT
}

in_debian() { "$here/root.sh" "$release" run "$@"; }

build() {
  local log=$results/release.log
  mkdir -p "$results"
  in_debian bash -c 'cmake --preset release && cmake --build --preset release' >"$log" 2>&1 || {
    grep -E 'error|warning|FAILED' "$log" || tail -n 20 "$log"
    fail "building in Debian $release failed, the lines above say where; all of it is in $log"
  }
  in_debian scripts/checks/binaries.py build/release
}

run_tests() {
  local files=("${tests[@]/\///test_}") status=0
  files=("${files[@]/%/.py}")
  rm -f "$results/integration.xml"
  in_debian python3 -m pytest -p no:cacheprovider -q --junit-xml=build/integration.xml "$@" "${files[@]/#/tests/integration/}" ||
    status=$?
  # A table of versions is of a run of all tests to the end: 0, or 1 where tests failed.
  if (($# == 0 && status <= 1)); then
    in_debian scripts/test_report/versions.py "debian $release" build/integration.xml
    mkdir -p build/report
    cp "$results/report/m9-debian-$release.json" build/report/
  fi
  return "$status"
}

main() {
  case ${1:-} in
    -h | --help) usage && exit ;;
    '') misused "no release" ;;
  esac
  readonly release=$1 results=build/debian$1
  shift
  "$here/root.sh" "$release" make
  build
  run_tests "$@"
}

main "$@"
exit
