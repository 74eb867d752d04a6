#!/usr/bin/env bash
# Installs Debian's Chromium, unless there is one. Requires root; without it, the tests of the page are skipped.
set -euo pipefail
if command -v chromium >/dev/null; then
  exit 0
fi
install=(apt-get install --yes -qq --no-install-recommends chromium)
if "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }; then
  exit 0
fi
echo "install_chromium.sh: chromium cannot be installed; the tests of the page are skipped" >&2
