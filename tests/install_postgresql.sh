#!/usr/bin/env bash
# Installs Debian's PostgreSQL, unless there is one. Requires root; without it, its tests are skipped. Starts no server.
set -euo pipefail
if ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
  exit 0
fi
# Without this, the package creates a cluster and starts it.
configuration=/etc/postgresql-common/createcluster.conf
if [ -w /etc ] && [ ! -e "$configuration" ]; then
  mkdir -p "$(dirname "$configuration")"
  echo "create_main_cluster = false" >"$configuration"
fi
install=(apt-get install --yes -qq --no-install-recommends -o Dpkg::Options::=--force-confold postgresql)
if "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }; then
  exit 0
fi
echo "install_postgresql.sh: postgresql cannot be installed; its tests are skipped" >&2
