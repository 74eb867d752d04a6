"""The C++ tests of the loop pass under the sanitizers: memory, undefined behavior, and data races."""

import subprocess

import pytest

from tests.support.native_build import LOOP, STRICT, TEST_LOOP, build, needs_compiler


@needs_compiler
@pytest.mark.parametrize("sanitizers", ["address", "thread"])
def test_the_loop_passes_its_tests_under_sanitizers(sanitizers: str, *, thorough: bool) -> None:
    if thorough and sanitizers == "address":
        sanitizers += ",undefined"  # it doubles the time of the compiler: `.ci/sanitize` has it
    sources = [*LOOP.glob("*.cpp"), TEST_LOOP / "loop_test.cpp"]
    options = (*STRICT, "-O1", "-g1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    program = build(f"loop-{sanitizers.partition(',')[0]}", sources, options)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
