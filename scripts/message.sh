# shellcheck shell=bash
# One-line messages of the scripts: "program: what was tried, why it failed, what to do". All of them go to
# stderr, so that stdout holds results only. The sourcing script sets `program`.

say() {
  printf '%s: %s\n' "${program:?}" "$*" >&2
}

fail() {
  say "$@"
  exit 1
}

# A wrong command line: exit 2, as getopt-style tools do, so that callers can distinguish it from a failure.
misused() {
  say "$*; \`$program --help\` shows the options"
  exit 2
}

require_root() {
  ((EUID == 0)) || fail "$1 needs root and runs as uid $EUID; use sudo"
}
