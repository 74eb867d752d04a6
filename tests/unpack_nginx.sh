#!/usr/bin/env bash
# Unpacks Debian's nginx into the folder $1, unless nginx is installed. Starts no service and installs nothing.
set -euo pipefail
mkdir -p "$1"
cd "$1"
if PATH="$PATH:/usr/sbin" command -v nginx >/dev/null || [ -x usr/sbin/nginx ]; then
  exit 0
fi
rm -f nginx_*.deb
if apt-get download -qq nginx || { apt-get update -qq && apt-get download -qq nginx; }; then
  dpkg -x nginx_*.deb .
fi
if [ ! -x usr/sbin/nginx ]; then
  echo "unpack_nginx.sh: nginx cannot be downloaded; the tests of deploy/nginx are skipped" >&2
fi
