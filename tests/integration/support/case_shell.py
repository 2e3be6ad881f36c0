"""Runs the scripts of cases, and has shell functions for them: a host file for --distribution=arbitrary, and an sbatch that
waits."""

import subprocess

FUNCTIONS = """
hostfile() { printf '%s\\n' "$@" > $OUT/hosts; export SLURM_HOSTFILE=$OUT/hosts; }
submit() {
  { echo '#!/bin/bash'; cat; echo "touch $OUT/done"; } > $OUT/batch
  sbatch --quiet --output=$OUT/log "$@" $OUT/batch > $OUT/id || return
  for ((i = 0; i < 1500; i++)); do [[ ! -e $OUT/done ]] || break; sleep 0.1; done
  cat $OUT/log >&2
}
"""
LIMIT = 180  # seconds for one case: Slurm may look for requeued jobs only once a minute
HELD = (124, 137)  # exit statuses of a script that did not end by itself
# Ends the jobs of such a script, which have its folder as their directory: a salloc may outlive `timeout`.
END_JOBS = """squeue --me --noheader --format='%A %Z' | awk -v folder="$OUT" '$2 == folder { print $1 }' | xargs -r scancel"""


def run_script(cluster, script, variables, limit=LIMIT, grace=20):
    """Runs the script of a case in a new folder, $OUT. After `limit` seconds the script and its jobs are ended, and `grace`
    seconds later its output is closed, even if a process still has it open."""
    line = ["timeout", "--kill-after=2", str(limit), "bash", "-c", f"rm -rf $OUT; mkdir -p $OUT; cd $OUT || exit\n{script}"]
    try:
        done = cluster.run(line, env=variables, timeout=limit + grace)
    except subprocess.TimeoutExpired as held:
        said = [(text or b"").decode(errors="replace") for text in (held.stdout, held.stderr)]
        done = subprocess.CompletedProcess(line, HELD[0], *said)
    if done.returncode in HELD:
        cluster.run(["sh", "-c", END_JOBS], env=variables)
    return done
