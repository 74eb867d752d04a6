"""Where `make optimum` installs Optimum, and what tests that need it are marked with."""

from pathlib import Path

import pytest

PYTHON = Path(__file__).parent.parent / ".venv-optimum" / "bin" / "python"
needs_optimum = pytest.mark.skipif(not PYTHON.exists(), reason="needs the environment that `make optimum` makes")
