#!/bin/sh
# Excludes unready replicas from nginx: a replica that is not ready within two seconds gets a file with its number in a
# folder, until it is ready. nginx checks these files at every request (nginx.conf).
#
#   deploy/nginx/watch_replicas.sh FOLDER URL...     as in http://127.0.0.1:8010, in the order of nginx.conf
#
# WATCH_SECONDS is the time between two probes of a replica. SIGTERM ends it and keeps the files.
set -u
folder=$1
shift
mkdir -p "$folder" || exit 1
command -v curl >/dev/null || {
  echo "watch_replicas.sh: curl: not installed" >&2
  exit 1
}

watch() {
  while true; do
    if curl --silent --fail --max-time 2 --output /dev/null "$2/readyz"; then
      rm -f "$folder/$1"
    else
      touch "$folder/$1"
    fi
    sleep "${WATCH_SECONDS:-1}"
  done
}

number=0
watchers=
# shellcheck disable=SC2086 # the ids of several processes
trap 'kill $watchers' EXIT
trap exit INT TERM
for url in "$@"; do
  number=$((number + 1))
  watch "$number" "$url" &
  watchers="$watchers $!"
done
wait
