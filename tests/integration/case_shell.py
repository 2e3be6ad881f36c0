"""Shell functions for the scripts of cases: a host file for --distribution=arbitrary, and sbatch that waits."""

FUNCTIONS = """
hostfile() { printf '%s\\n' "$@" > $OUT/hosts; export SLURM_HOSTFILE=$OUT/hosts; }
submit() {
  { echo '#!/bin/bash'; cat; echo "touch $OUT/done"; } > $OUT/batch
  sbatch --quiet --output=$OUT/log "$@" $OUT/batch > $OUT/id || return
  for ((i = 0; i < 400; i++)); do [[ ! -e $OUT/done ]] || break; sleep 0.1; done
  cat $OUT/log >&2
}
"""
