"""The C++ tests of the loop pass, also under the sanitizers: memory, undefined behavior, and data races."""

import subprocess

import pytest

from dragoman.serve.native.build import OPTIONS, WARNINGS
from tests.support.native_build import LOOP, STRICT, TEST_LOOP, build, needs_compiler


@needs_compiler
@pytest.mark.parametrize("sanitizers", ["", "address,undefined", "thread"])
def test_the_loop_passes_its_tests(sanitizers: str, *, thorough: bool) -> None:
    if sanitizers and not thorough:
        pytest.skip("compiles for long: run with --thorough, as .ci/sanitize does")
    sanitized = (*STRICT, "-O1", "-g1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    options = sanitized if sanitizers else (*OPTIONS, *WARNINGS)  # of the library's own objects
    sources = [*LOOP.glob("*.cpp"), TEST_LOOP / "loop_test.cpp"]
    program = build(f"loop-{sanitizers.partition(',')[0]}", sources, options)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
