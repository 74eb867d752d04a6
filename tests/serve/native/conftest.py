"""Tests of native operators need the built library."""

import pytest

from dragoman.serve.runtime.onnx_runtime import why_no_kernels


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    if reason := why_no_kernels():
        pytest.skip(reason)
