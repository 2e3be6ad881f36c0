#!/usr/bin/env bash
# Installs a build into an empty folder and uses it as a stranger would: files in place, nothing switched on by itself,
# pkg-config and CMake packages that work, man pages without a warning. Takes a build folder.
set -euo pipefail

# shellcheck disable=SC2034 # message.sh reads it
readonly program=check-install
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/message.sh
source "$here/../message.sh"

build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/usr

cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || { cat "$work/log" && fail "installing $build failed"; }

# The library folder is lib, lib64 or lib/TRIPLET, as GNUInstallDirs sees fit.
mapfile -t examples < <(cd "$here/../../etc/examples" && printf 'share/doc/*/examples/%s\n' *.{py,sbatch} */*)
for path in 'lib*/slurm/spank_bootstrap.so' 'lib*/libbootstrap.so.0' 'lib*/pkgconfig/bootstrap.pc' 'bin/slurm-bootstrap' \
  'lib*/cmake/slurm-bootstrap/slurm-bootstrap-config.cmake' 'include/bootstrap/bootstrap.h' 'share/slurm-bootstrap/*bootstrap.conf' \
  'share/bash-completion/completions/slurm-bootstrap' share/doc/\*/{README,CHANGELOG,SECURITY}.md "${examples[@]}" \
  share/man/{man1/slurm-bootstrap.1,man7/slurm-bootstrap.7,man8/spank_bootstrap.8}\*; do
  [[ -n $(find "$prefix" -path "$prefix/$path") ]] || fail "$path was not installed"
done
# Slurm reads what lies in its own configuration folder; nothing of ours may be there by itself.
[[ ! -e $prefix/etc ]] || fail "the installation wrote into etc/: $(find "$prefix/etc")"
find "$prefix/share/man" -type f -exec mandoc -T lint -W warning {} +

cat >"$work/main.c" <<'C'
#include <bootstrap/bootstrap.h>
#include <stdio.h>
int main(void) {
  bootstrap_t *job = NULL;
  if (bootstrap_open(&job, NULL) == BOOTSTRAP_OK) return 1; /* no step here */
  puts(bootstrap_last_error());
  return bootstrap_version() == 10000 ? 0 : 2;
}
C
libdir=$(dirname "$(find "$prefix" -name libbootstrap.so.0)")

# shellcheck disable=SC2046 # pkg-config answers with words
cc -std=c99 -Wall -Wextra -Werror "$work/main.c" -o "$work/by-pkg-config" \
  $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs bootstrap)
env -i LD_LIBRARY_PATH="$libdir" "$work/by-pkg-config" >/dev/null

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(slurm-bootstrap REQUIRED)
add_executable(user ../main.c)
target_link_libraries(user PRIVATE slurm-bootstrap::bootstrap)
CMAKE
if ! { cmake -S "$work/project" -B "$work/user" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$work/user"; } >"$work/log" 2>&1; then
  cat "$work/log"
  fail "the installed CMake package does not work"
fi
env -i "$work/user/user" >/dev/null

# Slurm's headers missing: configure stops and names the package.
if SLURM_ROOT=/nonexistent cmake -S "$here/../.." -B "$work/no-slurm" >"$work/log" 2>&1; then
  fail "configure went on without Slurm's headers"
fi
grep -q libslurm-dev "$work/log" || { cat "$work/log" && fail "configure did not name the missing package"; }
printf 'install: %d files, used by pkg-config and CMake\n' "$(find "$prefix" -type f | wc -l)"
