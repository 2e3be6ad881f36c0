#!/bin/sh
# Before the plugin is removed, takes out the links that switch it on: a link to nowhere would stay behind.
# An upgrade leaves them; dpkg says "remove" as the first argument, rpm "0".
set -e
case $1 in
  remove | 0)
    for line in /etc/slurm/plugstack.conf.d/*; do
      if [ -L "$line" ] && [ "$(readlink "$line")" = /usr/share/slurm-bootstrap/bootstrap.conf ]; then
        rm -f "$line"
      fi
    done
    ;;
esac
exit 0
