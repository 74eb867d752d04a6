#!/usr/bin/env bash
# Builds the serving image with a bundle and tests the container: no root, no write, no network, no torch; REST and gRPC
# translate; engines follow the CPUs of the container; with a folder for their state, one and two processes translate
# documents; after SIGTERM, the server is a lame duck, and process 1 ends with 0.
#
#   deploy/container_test.sh [FOLDER [NAME]]     the bundle is FOLDER/NAME, demo/bundle without arguments
#
# The bundle must translate from English to German.
# ENGINE is docker, podman or a compatible command; BUILD_OPTIONS and RUN_OPTIONS are passed to it unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
engine=${ENGINE:-docker}
folder=${1:-demo}
name=${2:-bundle}
image=localhost/dragoman:container-test
container=dragoman-container-test-$$
memory=512m
state="--tmpfs /state:mode=1777"

fail() {
  echo "violated: $1" >&2
  "$engine" logs "$container" >&2 || true
  exit 1
}

remove() {
  "$engine" rm --force "$container" >/dev/null 2>&1 || true
}
trap remove EXIT

# start CPUS OPTIONS [ARGUMENTS]: the options are of the engine, the arguments of the image.
start() {
  remove
  # shellcheck disable=SC2086 # several options in one variable
  "$engine" run --detach --name "$container" --network none --read-only --cap-drop ALL \
    --security-opt no-new-privileges --cpus "$1" --memory "$memory" $2 ${RUN_OPTIONS:-} "$image" "${@:3}" >/dev/null
}

probe() {
  "$engine" exec --interactive "$container" python - "$@" <deploy/container_probe.py
}

ready_field() {
  "$engine" logs "$container" 2>&1 | grep '"event": "ready"' | grep --only-matching "\"$1\": [^,}]*" | cut -d' ' -f2
}

# The health check of the image, which engines without a service manager do not run.
healthy() {
  "$engine" exec "$container" python -m dragoman.serve.commands.health >/dev/null 2>&1
}

stop_between_requests() {
  local answers code killed
  answers=$(mktemp)
  probe stop >"$answers" &
  until grep --quiet sending "$answers"; do
    kill -0 $! 2>/dev/null || fail "no request succeeded before the stop"
    sleep 0.1
  done
  "$engine" kill --signal TERM "$container" >/dev/null
  wait $! || fail "a request failed while the server stopped"
  code=$("$engine" wait "$container")
  killed=$("$engine" inspect --format '{{.State.OOMKilled}}' "$container")
  [ "$code" = 0 ] && [ "$killed" = false ] || fail "exit code $code, out of memory: $killed"
  echo "SIGTERM between requests: all $(tail -1 "$answers") answered, the last 20 after it; exit code 0; never over $memory"
}

# shellcheck disable=SC2086
"$engine" build --target cpu --build-arg BUNDLES="$folder" --build-arg BUNDLE="$name" ${BUILD_OPTIONS:-} \
  --tag "$image" .
echo "image: $(($("$engine" image inspect --format '{{.Size}}' "$image") / 1000000)) MB"

for cpus in 1 2; do
  start "$cpus" ""
  figures=$(probe) || fail "probe: $figures"
  # Caches of old builders ignore a changed argument.
  [ "$(ready_field bundle)" = "\"/bundles/$name\"" ] || fail "it does not serve $name; try BUILD_OPTIONS=--no-cache"
  engines=$(ready_field engines)
  [ "$engines" = "$cpus" ] || fail "$engines engines on $cpus CPUs"
  echo "$cpus CPUs: $engines engines, ready after $(ready_field seconds) s: $figures"
done

healthy || fail "the health check does not find the server"
# shellcheck disable=SC2086
alone=$("$engine" run --rm --network none ${RUN_OPTIONS:-} --entrypoint python "$image" -m dragoman.serve.commands.health 2>&1) &&
  fail "the health check finds a server where there is none"
grep --quiet "no port" <<<"$alone" || fail "the health check does not run: $alone"
echo "health check: finds the server, and misses one that is not there"

stop_between_requests

for processes in 1 2; do
  start 2 "$state" serve --state-dir /state --processes "$processes"
  figures=$(probe documents) || fail "probe: $figures"
  healthy || fail "the health check does not find $processes processes"
  echo "$processes processes with documents: $figures"
  stop_between_requests
done

start 1 "" serve /nowhere
[ "$("$engine" wait "$container")" != 0 ] || fail "a server without a bundle ends with 0"
echo "without a bundle: $("$engine" logs "$container" 2>&1 | tail -1)"
