"""Native graphs run with the library and with their fallback bodies."""

from collections.abc import Iterator

import pytest

from dragoman.serve.native.library import FALLBACK, INSTRUCTIONS_VARIABLE
from dragoman.serve.runtime.onnx_runtime import why_no_kernels


@pytest.fixture(scope="module", params=["kernels", "fallback"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """What computes the graphs that a test opens."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == FALLBACK:
            patch.setenv(INSTRUCTIONS_VARIABLE, FALLBACK)
        elif reason := why_no_kernels():
            pytest.skip(reason)
        yield request.param
