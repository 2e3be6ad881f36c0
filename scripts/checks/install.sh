#!/usr/bin/env bash
# Installs a build into an empty folder and uses it as a user would: files in place, nothing switched on by itself,
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

# The library folder is lib, lib64 or lib/TRIPLET, as GNUInstallDirs chooses.
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
find "$prefix/share/doc" -name '*.md' -exec "$here/documents.py" {} + >"$work/log" 2>&1 || { cat "$work/log" && fail "links of installed pages lead nowhere"; }

# The lines of bootstrap(3) for compilers and for CMake, on its first program and on the example in C++.
libdir=$(dirname "$(find "$prefix" -name libbootstrap.so.0)")
export PKG_CONFIG_PATH=$libdir/pkgconfig CMAKE_PREFIX_PATH=$prefix
cp -r "$prefix"/share/doc/*/examples "$work/project"
PYTHONPATH=$here/.. python3 - "$work/project" <<'PYTHON'
import pathlib, sys
from checks.pages import TOP, read_page
folder, blocks = pathlib.Path(sys.argv[1]), read_page(TOP / "etc/man/bootstrap.3").blocks
program, _, *calls = (block.text for block in blocks if block.kind == "c")
(folder / "ranks.c").write_text(program)
# Declarations that the calls of other libraries need.
names = "typedef struct ncclComm* ncclComm_t; typedef enum { UCC_OK, UCC_ERR_NO_MESSAGE, UCC_ERR_INVALID_PARAM } ucc_status_t;\n" \
        "typedef struct { int version; } nvshmemx_uniqueid_t, nvshmemx_init_attr_t; enum { NVSHMEMX_INIT_WITH_UNIQUEID };\n" \
        "#define NVSHMEMX_UNIQUEID_INITIALIZER {1}\n#define NVSHMEMX_INIT_ATTR_INITIALIZER {1}\n" \
        "int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t*);\n" \
        "int nvshmemx_set_attr_uniqueid_args(int, int, const nvshmemx_uniqueid_t*, nvshmemx_init_attr_t*);\n" \
        "int nvshmemx_init_attr(unsigned, nvshmemx_init_attr_t*);\n"
(folder / "calls.c").write_text("#include <bootstrap/bootstrap.h>\n" + names + "".join(calls))
(folder / "CMakeLists.txt").write_text(next(block.text for block in blocks if block.kind == "cmake"))
lines = [block.text for block in blocks if "pkg-config" in block.text]
(folder / "lines.sh").write_text("".join([*lines, "cc -c -Wall -Werror calls.c $(pkg-config --cflags bootstrap)\n"]))
PYTHON
if ! (cd "$work/project" && bash -e -c 'srun() { env -i "${!#}"; }; . ./lines.sh; cmake -B build; cmake --build build') >"$work/log" 2>&1; then
  cat "$work/log"
  fail "the lines of bootstrap(3) do not work"
fi
for name in ranks build/ranks; do # no step here
  [[ $(env -i "$work/project/$name" 2>&1) == *"SLURM_JOB_ID is not set"* ]] || fail "$name does not run"
done

# Slurm's headers missing: configure stops and names the package.
if SLURM_ROOT=/nonexistent cmake -S "$here/../.." -B "$work/no-slurm" >"$work/log" 2>&1; then
  fail "configure went on without Slurm's headers"
fi
grep -q libslurm-dev "$work/log" || { cat "$work/log" && fail "configure did not name the missing package"; }
printf 'install: %d files, used by pkg-config and CMake\n' "$(find "$prefix" -type f | wc -l)"
