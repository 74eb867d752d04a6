#!/usr/bin/env bash
# Unpacks Debian's clang and its libFuzzer into the folder $1, unless clang++ is installed. Installs nothing.
set -euo pipefail
mkdir -p "$1"
cd "$1"
if command -v clang++ >/dev/null || [ -x clang++ ]; then
  exit 0
fi
version=$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
names=$(printf '%s ' "clang-$version" "libclang-common-$version-dev" "libclang-rt-$version-dev" "libclang-cpp$version" "libllvm$version")
rm -f ./*.deb
# shellcheck disable=SC2086 # one name each
if [ -n "$version" ] && { apt-get download -qq $names || { apt-get update -qq && apt-get download -qq $names; }; }; then
  for package in *.deb; do dpkg -x "$package" .; done
  rm -f ./*.deb
  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$(dirname "$PWD"/usr/lib/*/libclang-cpp.so.*)" \
    "$PWD/usr/lib/llvm-$version/bin/clang++" >clang++
  chmod +x clang++
fi
if [ ! -x clang++ ]; then
  echo "unpack_clang.sh: clang cannot be downloaded; install clang with libFuzzer (libclang-rt-*-dev)" >&2
  exit 1
fi
