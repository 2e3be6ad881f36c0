#!/usr/bin/env bash
# The checks of a second Slurm: builds in Debian 13 (debian13.sh), runs the integration tests on clusters of its Slurm,
# and keeps the table of versions.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=debian13-check
library=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$(dirname "$library")")
readonly library repository
# shellcheck source=scripts/lib/message.sh
source "$library/message.sh"
cd "$repository"

# Files of tests/integration: what depends on the release of Slurm, PMIx, PyTorch or Open MPI, and not what measures time,
# forecasts, or needs no cluster.
readonly tests=(
  cluster layouts mpi_layouts options explain refusals hostile first_failure ports neighbours invisible secret gpus near_gpus
  exchange exchange_attendance exchange_faults exchange_neighbours exchange_network exchange_refusals exchange_rounds
  communicators preload preload_nccl preload_silence mpirun check frameworks horovod_server examples train
)

usage() {
  cat <<'TEXT'
Usage: scripts/lib/debian13-check.sh [PYTEST ARGUMENTS]

Makes the Debian 13 root where it is not made, builds the project in it with warnings as errors, and runs the integration
tests there, as root. Results are in build/debian13, the table of versions is in build/report.
TEXT
}

in_debian13() { "$library/debian13.sh" run "$@"; }

build() {
  local log=build/debian13/release.log
  mkdir -p build/debian13
  in_debian13 bash -c 'cmake --preset release && cmake --build --preset release' >"$log" 2>&1 || {
    grep -E 'error|warning|FAILED' "$log" || tail -n 20 "$log"
    fail "building in Debian 13 failed, the lines above say where; all of it is in $log"
  }
  in_debian13 scripts/lib/check-binaries.py build/release
}

run_tests() {
  local files=("${tests[@]/#/tests/integration/test_}") status=0
  rm -f build/debian13/integration.xml
  in_debian13 python3 -m pytest -p no:cacheprovider -q --junit-xml=build/integration.xml "$@" "${files[@]/%/.py}" ||
    status=$?
  # A table of versions is of a run to the end: 0, or 1 where tests failed.
  if ((status <= 1)); then
    in_debian13 scripts/lib/trust/versions.py keep 'debian 13' build/integration.xml
    mkdir -p build/report
    cp build/debian13/report/m9-debian-13.json build/report/
  fi
  return "$status"
}

main() {
  case ${1:-} in
    -h | --help) usage && exit ;;
  esac
  "$library/debian13.sh" make
  build
  run_tests "$@"
}

main "$@"
exit
