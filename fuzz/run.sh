#!/usr/bin/env bash
# Runs fuzz harnesses one after the other: run.sh SECONDS [NAME ...]. Prints executions, coverage and findings of each.
#
# Coverage is the number of edges that inputs reached: of the C++ of the harness, or of the Python below dragoman. A
# finding ends the run of its harness; the log has its trace. New inputs stay in build/fuzz for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
# shellcheck disable=SC2046 # one name each
[ $# -gt 0 ] || set -- $(ls fuzz/corpus)
failed=0
printf '%-16s %12s %10s %10s\n' harness executions coverage findings
for name in "$@"; do
  out="$PWD/build/fuzz/$name"
  rm -rf "$out/findings"
  mkdir -p "$out/findings" "$out/corpus"
  if [ "$name" = record_reader ]; then
    command=("$out/$name")
    clang++ -std=c++17 -O1 -g -pthread -ffp-contract=off -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
      -I serve/native/src "fuzz/$name.cpp" serve/native/src/loop/records.cpp -o "$out/$name"
  else
    command=(.venv/bin/python -m fuzz "$name")
  fi
  # One input takes milliseconds. Much more time or memory is a finding; libFuzzer counts the time that a busy machine takes.
  options=("-max_total_time=$seconds" "-artifact_prefix=$out/findings/" -timeout=300 -report_slow_units=300)
  options+=(-rss_limit_mb=2048 -print_final_stats=1)
  [ ! -f "fuzz/$name.dict" ] || options+=("-dict=fuzz/$name.dict")
  status=0
  # Harnesses write files, which a file system in memory holds.
  TMPDIR=$([ -d /dev/shm ] && echo /dev/shm || echo /tmp) \
    "${command[@]}" "${options[@]}" "$out/corpus" "fuzz/corpus/$name" >"$out/log" 2>&1 || status=$?
  last() { grep -aoP "$1" "$out/log" | tail -1; }
  printf '%-16s %12s %10s %10s\n' "$name" "$(last 'executed_units: \K\d+' || echo 0)" "$(last ' cov: \K\d+' || echo 0)" \
    "$(find "$out/findings" -type f | wc -l)"
  if [ "$status" != 0 ]; then
    failed=1
    find "$out/findings" -type f | sed 's/^/  /'
    echo "  exit status $status: see $out/log"
  fi
done
exit "$failed"
