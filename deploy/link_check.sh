#!/usr/bin/env bash
# Compiles and links the native library for systems on which it was not run, with the compiler of the package ziglang:
# macOS on Arm as a wheel needs it, and each source for Windows. Nothing runs, so this proves no more than that.
#
#   deploy/link_check.sh [FOLDER]     default: a temporary one; gets the library for macOS
#
# PYTHON needs the package ziglang.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
out=$(realpath "${1:-$(mktemp -d)}")
CXX="$python -m ziglang c++ -target aarch64-macos" _PYTHON_HOST_PLATFORM=macosx-11.0-arm64 "$python" - "$out" <<'BUILD'
import sys
from pathlib import Path

from dragoman.serve.native.build import build

sys.platform = "darwin"
print("linked for macOS on arm64:", build(Path(sys.argv[1]) / "libdragoman.dylib", objects=Path(sys.argv[1])))
BUILD
failed=0
for source in serve/native/src/*/*.cpp; do
  "$python" -m ziglang c++ -target x86_64-windows-gnu -std=c++17 -fsyntax-only -DDRAGOMAN_SET=portable "$source" 2>"$out/log" || {
    echo "does not compile for Windows: $source: $(grep --max-count=1 error: "$out/log")" && failed=$((failed + 1))
  }
done
echo "Windows: $failed sources do not compile"
