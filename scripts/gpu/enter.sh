#!/usr/bin/env bash
# Process 1 of scripts/gpu-check on a machine without Slurm: makes a view of the machine's files that has Slurm's packages, too,
# changes the root to it, and runs the tests there. Run in new mount and PID namespaces: enter.sh PACKED CHECKOUT FOLDER PYTEST-ARGUMENTS...
# All of it is mounted at FOLDER, and the kernel removes it with this process.
set -euo pipefail

readonly packed=$1 checkout=$2 work=$3
shift 3
# shellcheck disable=SC2034 # message.sh reads it
readonly program=gpu-check
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/message.sh
source "$here/../message.sh"

# In memory, like all that is written to in the view.
mount -t tmpfs -o mode=755 gpu-check "$work"
readonly over=$work/over under=$work/under view=$work/view
mkdir "$view" "$work"/{upper,work}
for layer in "$over" "$under"; do
  mkdir -p "$layer"/usr/{bin,sbin,lib,lib64}
  for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$layer/$folder"; done
done

# Slurm and PMIx as Debian built them for each other lie above the machine's files; what they need, such as the C library,
# lies beneath, and counts only where the machine has none.
for file in "$packed"/packages/*.deb; do
  case ${file##*/} in
    slurm* | munge_* | libmunge* | libpmi* | libhwloc*) layer=$over ;;
    *) layer=$under ;;
  esac
  dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink -C "$layer"
done
# This PMIx loads each plugin that it finds in its folder: those of another PMIx of the machine must not be among them.
for folder in "$over"/usr/lib/*/pmix2; do
  python3 -c 'import os, sys; os.setxattr(sys.argv[1], "trusted.overlay.opaque", b"y")' "$folder"
  # Slurm opens it by this name, which Debian has in its package for developers.
  ln -s libpmix.so.2 "$folder/lib/libpmix.so"
  ln -s pmix2/lib/libpmix.so "${folder%/*}/libpmix.so"
done
# Links that the packages make when they are installed.
for daemon in slurmctld slurmd slurmstepd; do ln -s "$daemon-wlm" "$over/usr/sbin/$daemon"; done

mount -t overlay overlay -o "lowerdir=$over:/:$under,upperdir=$work/upper,workdir=$work/work" "$view" ||
  fail "mounted an overlay of / for Slurm's packages, which failed; install them instead: scripts/setup"
# An overlay has what is on the machine's own file system, and not what is mounted there.
awk '$5 != "/" { print $5 }' /proc/self/mountinfo | sort -u | while read -r mounted; do
  [[ $mounted == "$work"* || ! -e $view$mounted ]] || mount --rbind "$mounted" "$view$mounted"
done
for user in munge:64031 slurm:64030; do
  grep -q "^${user%:*}:" "$view/etc/passwd" || printf '%s:x:%d:%d::/:/bin/false\n' "${user%:*}" "${user#*:}" "${user#*:}" >>"$view/etc/passwd"
  grep -q "^${user%:*}:" "$view/etc/group" || printf '%s:x:%d:\n' "${user%:*}" "${user#*:}" >>"$view/etc/group"
done
for folder in run tmp; do mount -t tmpfs -o mode=1777 gpu-check "$view/$folder"; done
mkdir -p "$view/run/lock" "$view$checkout"
mount --rbind "$checkout" "$view$checkout"
# Where nothing was built here, what was packed.
[[ -e $checkout/build/release ]] || ln -s gpu/release "$checkout/build/release"
mount -t proc -o nosuid,nodev,noexec proc "$view/proc"

chroot "$view" "$checkout/scripts/gpu-check" --inside -- "$@"
