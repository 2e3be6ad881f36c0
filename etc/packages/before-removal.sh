#!/bin/sh
# Before the plugin is removed: takes out the links that switch it on, and names the lines of plugstack.conf that stay behind.
# A line with the word required stops the removal, since every srun would fail on the missing file.
# An upgrade changes nothing. On removal, dpkg passes "remove" as the first argument, and rpm passes "0".
set -eu
case ${1:-} in
  remove | 0) ;;
  *) exit 0 ;;
esac

own_line=/usr/share/slurm-bootstrap/bootstrap.conf
plugstack=$(sed -n 's/^[[:space:]]*PlugStackConfig[[:space:]]*=[[:space:]]*//Ip' /etc/slurm/slurm.conf 2>/dev/null | head -n 1)
: "${plugstack:=/etc/slurm/plugstack.conf}"

# plugstack.conf and what it includes; a name there may be a pattern.
list_files() {
  printf '%s\n' "$plugstack" /etc/slurm/plugstack.conf.d/*
  # shellcheck disable=SC2046 # words and patterns are meant
  printf '%s\n' $(sed -n 's/^[[:space:]]*include[[:space:]]\{1,\}//p' "$plugstack" 2>/dev/null)
}

# Lines that match $1, as FILE:NUMBER:TEXT; those of the package's own file go with it.
find_lines() {
  list_files | sort -u | while read -r file; do
    if [ -f "$file" ] && [ "$(readlink -f "$file")" != "$own_line" ]; then
      grep -HnE "^[[:space:]]*$1" "$file" || true
    fi
  done
}

needed=$(find_lines 'required[[:space:]].*spank_bootstrap\.so')
if [ -n "$needed" ]; then
  cat >&2 <<TEXT
slurm-bootstrap-plugin is not removed: a line of plugstack.conf requires it, and without the file every srun, sbatch and
salloc fails. Remove this line first, on all hosts:
$needed
TEXT
  exit 1
fi

for link in /etc/slurm/plugstack.conf.d/*; do
  if [ -L "$link" ] && [ "$(readlink -f "$link")" = "$own_line" ]; then
    rm -f "$link"
  fi
done

left=$(find_lines "(optional[[:space:]].*spank_bootstrap\.so|include[[:space:]]+$own_line)")
if [ -n "$left" ]; then
  cat >&2 <<TEXT
slurm-bootstrap-plugin is removed, and plugstack.conf still names it. Slurm goes on without it, and may print an error in
each step. Remove this line:
$left
TEXT
fi
