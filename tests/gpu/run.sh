#!/usr/bin/env bash
# Checks Dragoman on a GPU: runs the tests marked `gpu`, the checks of accuracy and the benchmarks, and prints one table.
# Exits with 1 if a part fails; the other parts run all the same if there is a GPU. A part takes at most nine minutes,
# and a call at most 45: it does not run parts that could end later. A repeated call with the same OUT skips the parts that
# have passed.
#
#   tests/gpu/run.sh RUN DATA [OUT]
#     RUN   folder of a training run of a Transformer, or of a bundle in fp32
#     DATA  held-out sentences, as for `dragoman verify`: multi30k:en-de, files:test.en,test.de, ...
#     OUT   folder for logs, bundles and figures; default: build/gpu
#
#   tests/gpu/run.sh wheels FOLDER VERSION
#     fills the folder with wheels for WHEELS, on a machine with network; VERSION is that of the other machine's Python
#
# Needs Python 3.11 or later with pip and PyTorch with CUDA, a C++17 compiler or the package ziglang, and a driver for
# CUDA 13. CTranslate2 is compared if it is installed with its CUDA libraries. Installed packages are used.
# PYTHON        interpreter that has PyTorch; default: python3
# WHEELS        folder of wheels for a machine without network; those of installed packages may be missing. A wheel may
#               be split into NAME.whl.part*, joined in the order of their names. Without WHEELS, pip installs from its
#               index.
# CAPACITY_RATE start of the search for the capacity, in requests per second
# CPU_SCALING   numbers of engines and of processes, such as "1 2 4 8 16": also measures the engine on the CPU with each
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
# PyTorch is that of the machine. hatchling is the build backend, as build isolation would need the network.
packages="onnxscript sacrebleu sacremoses hatchling pytest pytest-timeout hypothesis"

if [ "${1:-}" = wheels ] && [ $# -eq 3 ]; then
  read -ra named <<< "$packages"
  exec python3 -m pip download --dest "$2" --constraint constraints.txt --only-binary :all: --implementation cp \
    --python-version "$3" --platform=manylinux_2_{28,27,17}_x86_64 --platform=manylinux{2014,1}_x86_64 \
    '.[cuda,bench]' "${named[@]}"
fi
[ $# -ge 2 ] && [ "$1" != wheels ] || { sed -n '2,/^set/p' tests/gpu/run.sh | sed 's/^# \{0,1\}//; /^set/d' >&2; exit 2; }
run=$1 data=$2 out=${3:-build/gpu}
python=${PYTHON:-python3}
environment=${ENVIRONMENT:-$out/venv}
mkdir -p "$out"
table=$out/table.txt
: > "$table"
failed=0

# The environment sees the packages of PYTHON, also if PYTHON is in an environment of its own.
install() {
  local options=() named part whole site_packages
  read -ra named <<< "$packages"
  "$python" -m venv --without-pip "$environment" || return
  site_packages=$(echo "$environment"/lib/python3*)/site-packages
  "$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' > "$site_packages/parent.pth"
  if [ -n "${WHEELS:-}" ]; then
    for part in "$WHEELS"/*.whl.part*; do
      [ -e "$part" ] || break
      whole=$(basename "${part%.part*}")
      [ -e "$out/$whole" ] || cat "$WHEELS/$whole".part* > "$out/$whole"
    done
    options=(--no-index --find-links "$WHEELS" --find-links "$out")
  fi
  pip() { "$python" -m pip --python "$environment/bin/python" --disable-pip-version-check "$@"; }
  pip install "${options[@]}" "${named[@]}" \
    && pip install "${options[@]}" --no-build-isolation --editable '.[cuda,bench]'
}

# Fails with the reason if ONNX Runtime finds no GPU: tests would be skipped.
gpu() {
  "$environment/bin/python" -c 'from dragoman.serve.runtime.driver import why_no_cuda; raise SystemExit(why_no_cuda())'
}

# Whether CTranslate2 can compute on the GPU: it loads cuBLAS when it multiplies.
has_ctranslate2() {
  "$environment/bin/python" -c 'import ctypes, ctranslate2; ctypes.CDLL("libcublas.so.12")' 2> /dev/null
}

# part NAME COMMAND...: runs the command, keeps its output, and adds its result and last line to the table.
part() {
  local name=$1 log="$out/${1// /-}.log"
  shift
  echo "== $name: $*"
  local started=$SECONDS result=pass
  if [ -e "$log.passed" ]; then
    result=kept
  elif [ "$SECONDS" -gt 2160 ]; then
    result=late failed=1
    echo "not run" > "$log"
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
  local options status tries=0
  read -ra options <<< "$1"
  shift
  # Not the function: its process would be that of a shell.
  PYTHONPATH=$PWD "$environment/bin/python" -m dragoman serve "${options[@]}" --lame-duck-seconds 0 > "$out/serve.log" 2>&1 &
  local server=$!
  until curl --silent --fail --output /dev/null http://127.0.0.1:8000/readyz; do
    if ! kill -0 "$server" 2> /dev/null || [ $((++tries)) -gt 180 ]; then
      kill "$server" 2> /dev/null
      tail -n 5 "$out/serve.log"
      return 1
    fi
    sleep 1
  done
  "$@"
  status=$?
  curl --silent http://127.0.0.1:8000/metrics | grep '^dragoman_gpu_memory' || true
  kill "$server" && wait "$server"
  return "$status"
}

kernels() {
  set -o pipefail
  # ONNX Runtime prints the attention kernel of each node; uniq keeps each kind of line once.
  ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO=1 dragoman verify "$out/cuda" --data "$data" --device cuda --checks tokens \
    --sentences 64 2>&1 | tee "$out/attention-kernels.txt" | grep -o 'Operator=.*' | sed 's/Node=[^ ]* //' | sort | uniq -c
}

export -f install gpu dragoman while_serving kernels
export out data environment python packages

part "environment" nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
part "installation" install
part "GPU" gpu
if [ ! -e "$out/GPU.log.passed" ]; then cat "$table"; exit 1; fi
part "pytest gpu" env PYTHONPATH="$PWD" "$environment/bin/python" -m pytest -q -m gpu tests/gpu/test_gpu.py
part "pytest device code" env PYTHONPATH="$PWD" "$environment/bin/python" -m pytest -q tests/serve/runtime/test_device.py \
  tests/serve/engine/native/test_device_engine.py tests/export/graphs/test_device_graphs.py tests/serve/runtime/test_placement.py
[ -e "$out/export-fp16.log.passed" ] || rm -rf "$out/cuda"
part "export fp16" dragoman export "$run" --out "$out/cuda" --variant cuda --precision fp16
# Compares tokens with PyTorch in 32 bits. The log has the share of translations that batches change.
part "tokens against PyTorch" dragoman verify "$out/cuda" --run "$run" --data "$data" --device cuda \
  --checks tokens --sentences 1000 --minimum-identical 0.99
part "attention kernels" kernels
# The same number of rows, or of sentences in a batch, for all systems. Each log ends with its tables.
export DRAGOMAN_PREFILL_TOKEN_BUDGET=4096
systems=dragoman:fp16:cuda,pytorch:fp16:cuda
if has_ctranslate2; then systems+=,ctranslate2:fp16:cuda; fi
for rows in 32 128 512 1024 2048; do
  mkdir -p "$out/offline-$rows"
  part "bench offline $rows" dragoman bench offline --plan benchmarks/plans/gpu.yaml --set "run=$run" \
    --set "data=$data" --set "systems=[$systems]" --set "slots=[$rows]" --set "batches=['$rows:examples']" \
    --set "alone=$((rows == 32 ? 50 : 1))" --out "$out/offline-$rows"
done
for scenario in steady lists; do
  part "capacity, $scenario" while_serving "$out/cuda --device cuda --slots 512 --prefill-token-budget 4096" \
    dragoman load --scenario "$scenario" --find-capacity --protocol grpc --rate "${CAPACITY_RATE:-200}" \
    --out "$out/capacity-$scenario"
done
part "logits against PyTorch" dragoman verify "$out/cuda" --run "$run" --data "$data" --device cuda \
  --checks logits --sentences 200
part "batch invariance" dragoman verify "$out/cuda" --data "$data" --device cuda --checks invariance
part "BLEU" dragoman evaluate "$out/cuda" --data "$data"
part "BLEU of PyTorch" dragoman evaluate "$run" --data "$data"
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
