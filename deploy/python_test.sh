#!/usr/bin/env bash
# Tests the extra `cpu` on every CPython from 3.11 at hand, and names those that are not: python3.N of the PATH, and as
# root with debootstrap those of Debian's releases.
#
#   deploy/python_test.sh DIST [FOLDER]     FOLDER keeps environments and trees; default: a temporary one
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:?the folder of the wheels}
work=${2:-$(mktemp -d)}
releases=([11]=bookworm [13]=trixie [14]=testing)
failed=0
for minor in 11 12 13 14; do
  python=python3.$minor
  if command -v "$python" >/dev/null; then
    PIP_CONSTRAINT=$PWD/constraints.txt PYTHON=$python deploy/install_test.sh "$dist" "$work/$python" ||
      { echo "$python of the PATH: FAILED" && failed=1; }
  elif [ -n "${releases[minor]:-}" ] && command -v debootstrap >/dev/null && [ "$(id --user)" = 0 ]; then
    deploy/debian_test.sh "$dist" "${releases[minor]}" "$(dpkg --print-architecture)" "$python" "$work/$python" ||
      { echo "$python of Debian ${releases[minor]}: FAILED" && failed=1; }
  else
    echo "$python: not found: not in the PATH, and in no release of Debian that is served"
  fi
done
exit "$failed"
