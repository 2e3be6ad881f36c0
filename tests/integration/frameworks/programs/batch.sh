# batch.sh OPTIONS... -- LINE: submits a batch script of one line, waits for its end, and prints its output.
# shellcheck shell=bash
while [[ $1 != -- ]]; do options+=("$1") && shift; done
shift
printf '#!/bin/bash\n%s\n' "$*" >"script.$$"
said=$(sbatch --parsable --output="script.$$.out" "${options[@]}" "script.$$") || exit 90
for ((i = 0; i < 4000; i++)); do [[ -n $(squeue -h -j "$said" 2>&1) ]] || break; sleep 0.1; done
cat "script.$$.out"
exit "$(scontrol show job "$said" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p')"
