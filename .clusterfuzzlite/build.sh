#!/usr/bin/env bash
# Builds each harness of fuzz/ as a program in $OUT, with its inputs and its dictionary. It has not been run yet.
set -euo pipefail
pip3 install --constraint constraints.txt '.[pdf]'
for corpus in fuzz/corpus/*/; do
  name=$(basename "$corpus")
  if [ "$name" = record_reader ]; then
    # shellcheck disable=SC2086 # the variables hold several options
    $CXX $CXXFLAGS $LIB_FUZZING_ENGINE -std=c++17 -pthread -ffp-contract=off -I serve/native/src \
      fuzz/record_reader.cpp serve/native/src/loop/records.cpp -o "$OUT/record_reader_fuzzer"
  else
    printf 'import sys\n\nfrom fuzz.__main__ import main\n\nmain("%s", sys.argv[1:])\n' "$name" >"${name}_fuzzer.py"
    compile_python_fuzzer "${name}_fuzzer.py" --paths . --hidden-import "fuzz.$name" --add-data "$corpus:$corpus" \
      --collect-data dragoman --collect-all pypdfium2_raw
  fi
  python3 -m zipfile --create "$OUT/${name}_fuzzer_seed_corpus.zip" "$corpus"*
  if [ -f "fuzz/$name.dict" ]; then
    cp "fuzz/$name.dict" "$OUT/${name}_fuzzer.dict"
  fi
done
