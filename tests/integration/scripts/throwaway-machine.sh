#!/bin/sh
# A copy of this machine to change and throw away, with all packages installed in it. Its files are an overlay in memory
# over those of the real machine, in a mount namespace: unshare --mount throwaway-machine.sh REPOSITORY.
# Prints "ready", and ends with its standard input.
set -eu

mount --make-rprivate /
mount -t tmpfs -o mode=755 stage /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
for folder in /proc /sys /dev /run /tmp "$1"; do
  mount --rbind "$folder" "/mnt/root$folder"
done
cd /mnt/root
pivot_root . mnt
umount -l /mnt
echo ready
exec cat
