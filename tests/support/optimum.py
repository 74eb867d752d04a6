"""Where `make optimum` installs Optimum, and what tests that need it are marked with."""

import pytest

from tests.support.paths import ROOT

PYTHON = ROOT / ".venv-optimum" / "bin" / "python"
needs_optimum = pytest.mark.skipif(not PYTHON.exists(), reason="needs the environment that `make optimum` makes")
