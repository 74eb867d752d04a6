#!/usr/bin/env bash
# Compiles the native library for systems that nobody has run it on, macOS on Arm and Windows, and links it. The compiler is that of
# the package ziglang.
#
#   deploy/link_test.sh
#
# TOOLS keeps the environment of the compiler; default: build/wheel_tools.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath --canonicalize-missing "${TOOLS:-build/wheel_tools}")
"${PYTHON:-python3.11}" -m venv "$tools"
"$tools/bin/pip" install --quiet --constraint constraints.txt ziglang
mkdir -p build/link

link() { # TARGET SYSTEM PLATFORM FILE
  CXX="$tools/bin/python -m ziglang c++ -target $1 -fno-sanitize=undefined" _PYTHON_HOST_PLATFORM=$3 PYTHONPATH=serve/native \
    "$tools/bin/python" -c 'import sys, build; build.build(build.Path(sys.argv[1]), system=sys.argv[2])' "build/link/$4" "$2"
  echo "$1: build/link/$4, $(stat --format %s "build/link/$4") bytes"
}

link aarch64-macos darwin macosx-arm64 libdragoman.dylib
link x86_64-windows-gnu win32 win-amd64 dragoman.dll
