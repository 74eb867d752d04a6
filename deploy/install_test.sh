#!/usr/bin/env bash
# Installs dragoman[cpu] from a local index into an empty environment, and serves with it.
#
#   deploy/install_test.sh DIST FOLDER     DIST has wheels of build_wheels.sh; FOLDER gets the environment
#
# All other packages come from the index of pip, PIP_CONSTRAINT names their versions, and PYTHON is the interpreter.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
dist=$(realpath "$1")
mkdir -p "$2/index/dragoman"
folder=$(realpath "$2")
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off

# A simple index: a page of links for each package.
cp "$dist"/*.whl "$folder/index/dragoman"
for wheel in "$folder"/index/dragoman/*.whl; do
  echo "<a href=\"$(basename "$wheel")\">$(basename "$wheel")</a>"
done >"$folder/index/dragoman/index.html"

"${PYTHON:-python3}" -m venv "$folder/environment"
python=$folder/environment/bin/python
size() {
  du --summarize --block-size=1000000 "$folder/environment" | cut --fields=1
}
before=$(size)
started=$SECONDS
# Twice quiet: pip warns of packages that the local index lacks. Nothing is compiled.
"$python" -m pip install --quiet --quiet --only-binary :all: --extra-index-url "file://$folder/index" 'dragoman[cpu]'
echo "$("$python" --version) on $(uname -m): installed in $((SECONDS - started)) s, $(($(size) - before)) MB"
"$here/serve_test.sh" "$python"
