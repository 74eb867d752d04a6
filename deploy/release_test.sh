#!/usr/bin/env bash
# Builds the distributions twice and tests them: both builds are bitwise the same; dragoman[cpu], installed from a local
# index into an empty environment, serves the included model; the environment is listed and audited for known
# vulnerabilities.
#
#   deploy/release_test.sh [FOLDER]     default: dist
#
# FOLDER gets the distributions, SHA256SUMS and the list of packages of the environment (CycloneDX). NO_AUDIT skips the
# audit, which uses PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
export PYTHON=${PYTHON:-python3.11}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1

deploy/build_wheels.sh "$work/first"
deploy/build_wheels.sh "$work/second" >/dev/null
(cd "$work/first" && sha256sum -- * >SHA256SUMS)
(cd "$work/second" && sha256sum --check --quiet "$work/first/SHA256SUMS")
echo "two builds are the same:"
cat "$work/first/SHA256SUMS"

PIP_CONSTRAINT=$PWD/constraints.txt deploy/install_test.sh "$work/first" "$work/serving"

serving=$work/serving/environment/bin
"$PYTHON" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --constraint constraints.txt cyclonedx-bom pip-audit
"$serving/pip" uninstall --quiet --yes pip setuptools
"$work/tools/bin/cyclonedx-py" environment "$serving/python" --output-reproducible \
  --output-file "$work/first/dragoman-serving.cdx.json"
echo "the serving environment holds $(grep --count '"purl"' "$work/first/dragoman-serving.cdx.json") packages"

mkdir -p "$out"
cp "$work"/first/* "$out"
# Strict, because a failed lookup would otherwise pass.
if [ -z "${NO_AUDIT:-}" ]; then
  "$work/tools/bin/pip" --python "$serving/python" freeze --exclude dragoman >"$work/serving.txt"
  "$work/tools/bin/pip-audit" --strict --no-deps --disable-pip --requirement "$work/serving.txt"
fi
