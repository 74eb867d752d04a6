#!/usr/bin/env bash
# Builds wheel and source distribution twice and proves them: both builds are the same bit for bit; the wheel, installed
# where nothing else is, serves the bundle that is named; its environment is listed and searched for known vulnerabilities.
#
#   deploy/release_test.sh [BUNDLE [FOLDER]]     demo/bundle, and dist for what is released, without arguments
#
# FOLDER gets the distributions, SHA256SUMS and the list of all that a serving environment holds (CycloneDX). NO_AUDIT
# leaves out the search, which asks PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=$(realpath "${1:-demo/bundle}")
out=${2:-dist}
python=${PYTHON:-python3.11}
work=$(mktemp -d)
server=
trap 'kill ${server:-} 2>/dev/null || true; rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
# The commit says when, so that everybody who builds it gets the same bits.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# From a copy of what git holds: nothing that only lies around on this machine gets into a release.
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
cd "$work" # away from the source: what is imported is what was installed
port=${PORT:-18000}
"$work/serving/bin/dragoman" serve "$bundle" --http-port "$port" --grpc-port $((port + 1)) --host 127.0.0.1 \
  --lame-duck-seconds 0 2>"$work/log" &
server=$!
curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors --output /dev/null "http://127.0.0.1:$port/readyz" ||
  { cat "$work/log" >&2 && exit 1; }
echo 'A man is playing the guitar.' | "$work/serving/bin/dragoman" translate --server "127.0.0.1:$((port + 1))"
kill "$server"
wait "$server" # with 0, or this script ends here
server=
echo "the installed wheel serves, translates and stops"
cd - >/dev/null

"$work/serving/bin/pip" uninstall --quiet --yes pip setuptools
"$work/tools/bin/cyclonedx-py" environment "$work/serving/bin/python" --output-reproducible \
  --output-file "$work/first-dist/dragoman-serving.cdx.json"
echo "the serving environment holds $(grep --count '"purl"' "$work/first-dist/dragoman-serving.cdx.json") packages"

mkdir -p "$out"
cp "$work"/first-dist/* "$out"
# Strict, because what could not be looked up would otherwise pass as free of vulnerabilities.
if [ -z "${NO_AUDIT:-}" ]; then
  "$work/tools/bin/pip" --python "$work/serving/bin/python" freeze --exclude dragoman >"$work/serving.txt"
  "$work/tools/bin/pip-audit" --strict --no-deps --disable-pip --requirement "$work/serving.txt"
fi
