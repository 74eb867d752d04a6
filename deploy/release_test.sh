#!/usr/bin/env bash
# Builds wheel and source distribution twice and tests them: both builds are bitwise the same; the wheel, installed in a
# new environment, serves the given bundle; the environment is listed and audited for known vulnerabilities.
#
#   deploy/release_test.sh [BUNDLE [FOLDER]]     default: demo/bundle and dist
#
# FOLDER gets the distributions, SHA256SUMS and the list of packages of the environment (CycloneDX). NO_AUDIT skips the
# audit, which uses PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=$(realpath "${1:-demo/bundle}")
out=${2:-dist}
python=${PYTHON:-python3.11}
work=$(mktemp -d)
server=
trap 'kill ${server:-} 2>/dev/null || true; rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
# The time of the commit makes the build reproducible.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# Built from the files of git, so that no other file gets into a release.
build() {
  mkdir "$work/$1"
  git archive HEAD | tar --extract --directory "$work/$1"
  (cd "$work/$1" && PIP_CONSTRAINT=$work/constraints.txt "$work/tools/bin/python" -m build --outdir "$work/$1-dist" . >"$work/log" 2>&1) ||
    { cat "$work/log" >&2 && exit 1; }
}

cp constraints.txt "$work"
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --constraint constraints.txt build cyclonedx-bom pip-audit
build first
build second
(cd "$work/first-dist" && sha256sum -- * >SHA256SUMS)
(cd "$work/second-dist" && sha256sum --check --quiet "$work/first-dist/SHA256SUMS")
echo "two builds are the same:"
cat "$work/first-dist/SHA256SUMS"

"$python" -m venv "$work/serving"
wheel=$(echo "$work"/first-dist/*.whl)
"$work/serving/bin/pip" install --quiet --constraint constraints.txt "$wheel[cpu]"
cd "$work" # outside the source, so that Python imports the installed package
port=${PORT:-18000}
"$work/serving/bin/dragoman" serve "$bundle" --http-port "$port" --grpc-port $((port + 1)) --host 127.0.0.1 \
  --lame-duck-seconds 0 2>"$work/log" &
server=$!
curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors --output /dev/null "http://127.0.0.1:$port/readyz" ||
  { cat "$work/log" >&2 && exit 1; }
echo 'A man is playing the guitar.' | "$work/serving/bin/dragoman" translate --server "127.0.0.1:$((port + 1))"
kill "$server"
wait "$server" # fails unless its status is 0
server=
echo "the installed wheel serves, translates and stops"
cd - >/dev/null

"$work/serving/bin/pip" uninstall --quiet --yes pip setuptools
"$work/tools/bin/cyclonedx-py" environment "$work/serving/bin/python" --output-reproducible \
  --output-file "$work/first-dist/dragoman-serving.cdx.json"
echo "the serving environment holds $(grep --count '"purl"' "$work/first-dist/dragoman-serving.cdx.json") packages"

mkdir -p "$out"
cp "$work"/first-dist/* "$out"
# Strict, because a failed lookup would otherwise pass.
if [ -z "${NO_AUDIT:-}" ]; then
  "$work/tools/bin/pip" --python "$work/serving/bin/python" freeze --exclude dragoman >"$work/serving.txt"
  "$work/tools/bin/pip-audit" --strict --no-deps --disable-pip --requirement "$work/serving.txt"
fi
