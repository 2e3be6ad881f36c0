#!/usr/bin/env bash
# Process 1 of a command in another root folder: makes its mounts, changes the root to it, and becomes the command's runner.
# Run by root.sh in new mount and PID namespaces: enter.sh ROOT CHECKOUT NAME HIERARCHIES CGROUP TERMINAL COMMAND...
# Inside, build/ is build/NAME of the checkout. HIERARCHIES are mount points of cgroups, separated by blanks; inside, each shows
# its cgroup CGROUP. TERMINAL is for local_cluster/run-as-user.sh.
set -euo pipefail

readonly root=$1 checkout=$2 name=$3 hierarchies=$4 cgroup=$5 terminal=$6
shift 6
readonly inside=/srv/slurm-bootstrap

# pivot_root needs a mount point.
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for folder in $hierarchies; do
  mount --bind "$folder/$cgroup" "$root$folder"
done
for folder in run tmp var/tmp; do
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/$folder"
done
mkdir -p "$root/run/lock" "$root$inside" "$checkout/build/$name"
mount --bind "$checkout" "$root$inside"
# One release cannot use what another one has built.
mount --bind "$checkout/build/$name" "$root$inside/build"

# This mounts the old root over the new one, and then unmounts the old root.
cd "$root"
pivot_root . .
umount --lazy .
# As process 1 it also reaps orphans: bash does that while it waits for the command.
exec "$inside/scripts/local_cluster/run-as-user.sh" "$terminal" 0 0 "$inside" HOME=/root USER=root LOGNAME=root SHELL=/bin/bash \
  TERM="${TERM:-dumb}" LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin -- "$@"
