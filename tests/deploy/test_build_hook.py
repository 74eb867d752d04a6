"""The hook of the build asks for a compiler only where there is none, and a failed build leaves no library behind."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.paths import ROOT


@pytest.fixture
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Application:
    """Collects warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def make_hook(module: ModuleType) -> tuple[Any, Application]:
    application = Application()
    hook = module.NativeBuildHook(str(ROOT), {}, None, None, "", "wheel", application)
    return hook, application


def test_a_compiler_is_required_only_without_one(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, _ = make_hook(module)
    monkeypatch.setattr(module, "find_compiler", lambda: ["c++"])
    assert hook.dependencies() == []
    monkeypatch.setattr(module, "find_compiler", lambda: None)
    assert hook.dependencies() == ["ziglang"]


def test_a_failed_build_is_a_warning_and_leaves_no_library(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise module.BuildError("no compiler")

    old = tmp_path / "libdragoman.so"
    old.write_bytes(b"of other sources")
    monkeypatch.setattr(module, "LIBRARY", old)
    monkeypatch.setattr(module, "build", fail)
    hook, application = make_hook(module)
    build_data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    hook.initialize("standard", build_data)
    assert build_data == {"artifacts": [], "pure_python": True}
    assert not old.exists()
    assert application.warnings == ["Dragoman is built without its native library, and will be slower: no compiler"]
