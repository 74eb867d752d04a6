#!/usr/bin/env bash
# Checks Dragoman on a GPU: runs the tests marked `gpu`, the checks of accuracy and the benchmarks, and prints one table.
# Exits with 1 if a part fails; the other parts run all the same. A part takes at most nine minutes. A repeated call with
# the same OUT skips the parts that have passed.
#
#   tests/gpu/run.sh RUN DATA [OUT]
#     RUN   folder of a training run of a Transformer, or of a bundle in fp32
#     DATA  held-out sentences, as for `dragoman verify`: multi30k:en-de, files:test.en,test.de, ...
#     OUT   folder for logs, bundles and figures; default: build/gpu
#
# Needs Python 3.11 or later, a C++17 compiler or the package ziglang, a driver for CUDA 13, and PyTorch with CUDA and
# CTranslate2 with its CUDA libraries for the comparisons; installed packages are used.
# WHEELS        folder of wheels for a machine without network: onnxruntime-gpu, nvidia-ml-py and all other packages of
#               the extras and tests that the machine lacks. A wheel may be split into NAME.whl.part*, joined in the
#               order of their names. Without WHEELS, pip installs from its index.
# CAPACITY_RATE start of the search for the capacity, in requests per second
# CPU_SCALING   numbers of engines and of processes, such as "1 2 4 8 16": also measures the engine on the CPU with each
set -uo pipefail
cd "$(dirname "$0")/../.."

[ $# -ge 2 ] || { sed -n '2,/^set/p' "$0" | sed 's/^# \{0,1\}//; /^set/d' >&2; exit 2; }
run=$1 data=$2 out=${3:-build/gpu}
python=${PYTHON:-python3.11}
environment=${ENVIRONMENT:-$out/venv}
mkdir -p "$out"
table=$out/table.txt
: > "$table"
failed=0

install() {
  [ -x "$environment/bin/python" ] || "$python" -m venv --system-site-packages "$environment"
  local options=()
  if [ -n "${WHEELS:-}" ]; then
    local part
    for part in "$WHEELS"/*.whl.part*; do
      [ -e "$part" ] || break
      local whole="$out/$(basename "${part%%.part*}")"
      [ -e "$whole" ] || cat "$WHEELS/$(basename "$whole")".part* > "$whole"
    done
    options=(--no-index --find-links "$WHEELS" --find-links "$out")
  fi
  # Build isolation would need the network. hatchling is the build backend.
  "$environment/bin/pip" install --disable-pip-version-check "${options[@]}" hatchling pytest pytest-timeout hypothesis httpx \
    && "$environment/bin/pip" install --disable-pip-version-check "${options[@]}" --no-build-isolation \
      --editable '.[cuda,train,export,bench]'
}

# part NAME COMMAND...: runs the command, keeps its output, and adds its result and last line to the table.
part() {
  local name=$1 log="$out/${1// /-}.log"
  shift
  echo "== $name: $*"
  local started=$SECONDS result=pass
  if [ -e "$log.passed" ]; then
    result=kept
  elif timeout --kill-after 10 540 bash -c '"$@"' part "$@" > "$log" 2>&1; then
    touch "$log.passed"
  else
    result=FAIL failed=1
  fi
  tail -n 40 "$log"
  printf '%-28s %-5s %5s s  %s\n' "$name" "$result" "$((SECONDS - started))" \
    "$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c 1-150)" >> "$table"
}

dragoman() { PYTHONPATH=$PWD "$environment/bin/python" -m dragoman "$@"; }

# while_serving "OPTION..." COMMAND...: serves with the options while the command runs.
while_serving() {
  local options status=1
  read -ra options <<< "$1"
  shift
  dragoman serve "${options[@]}" --lame-duck-seconds 0 > "$out/serve.log" 2>&1 &
  local server=$!
  if curl --silent --fail --output /dev/null --retry 180 --retry-all-errors --retry-delay 1 http://127.0.0.1:8000/readyz
  then "$@"; status=$?; fi
  curl --silent http://127.0.0.1:8000/metrics | grep '^dragoman_gpu_memory' || true
  kill "$server" && wait "$server"
  return $status
}

kernels() {
  # ONNX Runtime prints the attention kernel of each node; uniq keeps each kind of line once.
  ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO=1 dragoman verify "$out/cuda" --data "$data" --device cuda --checks tokens \
    --sentences 64 2>&1 | tee "$out/attention-kernels.txt" | grep -o 'Operator=.*' | sed 's/Node=[^ ]* //' | sort | uniq -c
}

export -f install dragoman while_serving kernels
export out data environment python

part "environment" nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
part "installation" install
part "pytest gpu" env PYTHONPATH="$PWD" "$environment/bin/python" -m pytest -q -m gpu tests/gpu/test_gpu.py
part "pytest device code" env PYTHONPATH="$PWD" "$environment/bin/python" -m pytest -q tests/serve/runtime/test_device.py \
  tests/serve/engine/native/test_device_engine.py tests/export/graphs/test_device_graphs.py tests/serve/runtime/test_placement.py
[ -e "$out/export-fp16.log.passed" ] || rm -rf "$out/cuda"
part "export fp16" dragoman export "$run" --out "$out/cuda" --variant cuda --precision fp16
# Compares tokens with PyTorch in 32 bits. The log has the share of translations that batches change.
part "tokens against PyTorch" dragoman verify "$out/cuda" --run "$run" --data "$data" --device cuda \
  --checks tokens --sentences 1000 --minimum-identical 0.99
part "logits against PyTorch" dragoman verify "$out/cuda" --run "$run" --data "$data" --device cuda \
  --checks logits --sentences 200
part "batch invariance" dragoman verify "$out/cuda" --data "$data" --device cuda --checks invariance
part "BLEU" dragoman evaluate "$out/cuda" --data "$data"
part "BLEU of PyTorch" dragoman evaluate "$run" --data "$data"
part "attention kernels" kernels
# Each log ends with the tables of its number of rows.
export DRAGOMAN_PREFILL_TOKEN_BUDGET=4096
for rows in 32 128 512 2048; do
  mkdir -p "$out/offline-$rows"
  part "bench offline $rows" dragoman bench offline --plan benchmarks/plans/gpu.yaml --set "run=$run" \
    --set "data=$data" --set "slots=[$rows]" --out "$out/offline-$rows"
done
part "capacity at p99 100 ms" while_serving "$out/cuda --device cuda --slots 512 --prefill-token-budget 4096" \
  dragoman load --find-capacity --protocol grpc --rate "${CAPACITY_RATE:-200}" --out "$out/capacity"
if [ -n "${CPU_SCALING:-}" ]; then
  [ -e "$out/export-int8.log.passed" ] || rm -rf "$out/cpu"
  part "export int8" dragoman export "$run" --out "$out/cpu" --precision int8
fi
for count in ${CPU_SCALING:-}; do
  mkdir -p "$out/engines-$count"
  part "CPU, $count engines" dragoman bench offline --plan benchmarks/plans/cpu_scaling.yaml --set "run=$run" \
    --set "data=$data" --set "engines=$count" --out "$out/engines-$count"
  part "CPU, $count processes" while_serving "$out/cpu --processes $count --engines 1" \
    dragoman load --find-capacity --protocol grpc --rate "${CAPACITY_RATE:-200}" --out "$out/processes-$count"
done

echo
cat "$table"
exit $failed
