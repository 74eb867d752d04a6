#!/usr/bin/env bash
# Unpacks Debian's nginx into the folder $1, unless nginx is installed. Needs no root and starts no service.
set -euo pipefail
mkdir -p "$1/usr/sbin"
if PATH="$PATH:/usr/sbin" command -v nginx >/dev/null || [ -x "$1/usr/sbin/nginx" ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "unpack_nginx.sh: no apt-get; install nginx to run the tests of deploy/nginx" >&2
  exit 0
fi
cd "$1"
apt-get download -qq nginx || { apt-get update -qq && apt-get download -qq nginx; }
dpkg -x nginx_*.deb .
