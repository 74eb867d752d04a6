#!/usr/bin/env bash
# Tests an installed package: it has the native library, reproduces the golden sentences of the included model, serves,
# translates and stops.
#
#   deploy/serve_test.sh PYTHON
set -euo pipefail
python=$1
work=$(mktemp -d)
server=
trap 'kill ${server:-} 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work" # outside of the source, so that Python imports the installed package
"$python" -c '
from dragoman.serve.native.library import instructions, why_no_library
print(why_no_library() or f"instructions: {instructions()}")
raise SystemExit(bool(why_no_library()))'
port=${PORT:-18000}
"$python" -m dragoman serve --host 127.0.0.1 --http-port "$port" --grpc-port $((port + 1)) --lame-duck-seconds 0 \
  2>"$work/log" &
server=$!
started=$SECONDS
until grep --quiet --no-messages '"event": "ready"' "$work/log"; do
  kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2 && exit 1; }
  sleep 1
done
echo "ready after $((SECONDS - started)) s: the golden sentences are reproduced"
echo 'The password is too short.' | "$python" -m dragoman translate --server "127.0.0.1:$((port + 1))" \
  --source-language en --target-language fr
kill "$server"
wait "$server" # fails unless its status is 0
server=
echo "stopped with status 0"
