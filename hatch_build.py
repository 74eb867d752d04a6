"""Compiles the native library when hatchling builds a wheel or an editable install."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # hatchling loads this file by its path
from dragoman.serve.native.build import LIBRARY, BuildError, build, find_compiler  # noqa: E402 - after the path


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the library to the distribution. Without a compiler, models run on standard operators."""

    def dependencies(self) -> list[str]:
        """Returns a compiler from PyPI if the machine has none."""
        return [] if find_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - of the interface
        """Compiles the library into the source tree, where an editable install finds it."""
        try:
            build()
        except BuildError as error:
            LIBRARY.unlink(missing_ok=True)  # one of other sources
            self.app.display_warning(f"Dragoman is built without its native library, and will be slower: {error}")
            return
        build_data["artifacts"].append(f"/{LIBRARY.relative_to(ROOT)}")
        build_data["pure_python"] = False
        # The library does not depend on the version of Python.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
