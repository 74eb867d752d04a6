"""The environment of Optimum from `make optimum`, and the mark of tests that need it."""

import pytest

from tests.support.paths import ROOT

PYTHON = ROOT / ".venv-optimum" / "bin" / "python"
needs_optimum = pytest.mark.skipif(not PYTHON.exists(), reason="needs the environment that `make optimum` makes")
