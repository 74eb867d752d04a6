#!/usr/bin/env bash
# Tests the extra `cpu` on every CPython from 3.11 at hand, and names those that are not: python3.N of the PATH or of
# pyenv, and as root with debootstrap those of Debian's releases.
#
#   deploy/python_test.sh DIST [FOLDER]     FOLDER keeps environments and trees; default: a temporary one
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:?the folder of the wheels}
work=${2:-$(mktemp -d)}
releases=([11]=bookworm [13]=trixie [14]=testing)
failed=0

# The shims of pyenv fail for versions that are not selected.
at_hand() {
  for candidate in "python3.$1" "$HOME/.pyenv/versions/3.$1".*/"bin/python3.$1"; do
    if "$candidate" -c "" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

for minor in 11 12 13 14; do
  name=python3.$minor
  python=$(at_hand "$minor")
  if [ -n "$python" ]; then
    PIP_CONSTRAINT=$PWD/constraints.txt PYTHON=$python deploy/install_test.sh "$dist" "$work/$name" ||
      { echo "$name: FAILED" && failed=1; }
  elif [ -n "${releases[minor]:-}" ] && command -v debootstrap >/dev/null && [ "$(id --user)" = 0 ]; then
    deploy/debian_test.sh "$dist" "${releases[minor]}" "$(dpkg --print-architecture)" "$name" "$work/$name" ||
      { echo "$name of Debian ${releases[minor]}: FAILED" && failed=1; }
  else
    echo "$name: not found"
  fi
done
exit "$failed"
