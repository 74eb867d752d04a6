"""The engines that the tests of decoding run: the reference in Python, and the native one."""

import pytest

from tests.support.engines import Bench
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench

MakeBench = type[Bench] | type[NativeBench]
each_engine = pytest.mark.parametrize(
    "make_bench", [pytest.param(Bench, id="python"), pytest.param(NativeBench, id="native", marks=needs_compiler)]
)
